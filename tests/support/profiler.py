"""What the server examines for what it is asked, as its own profiler counts it."""

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.database import Database

from tests.support.stores import Json


@contextmanager
def profiled(data: Database[Json]) -> Iterator[list[Json]]:
    """Collect what the server notes about each command on the database."""
    entries: list[Json] = []
    data.command("profile", 2)
    try:
        yield entries
    finally:
        data.command("profile", 0)
        own = {"ns": {"$ne": f"{data.name}.system.profile"}, "planSummary": {"$exists": True}}
        entries += data["system.profile"].find(own)
        data.drop_collection("system.profile")
