"""Writes the frozen documents that are not there yet; one that is there is never written again.

python -m tests.compat.freeze

Documents that no codec writes (definitions, completions), and sealed ones, whose nonces are random, are written by hand.

For a new schema version: name its folder here, and keep the folders of the older versions.
"""

from collections.abc import Iterator
from datetime import UTC
from pathlib import Path

from bson import json_util
from bson.binary import UuidRepresentation

from kikwiflow_worker.store.mongo.collections import SCHEMA_VERSION
from tests.compat.kinds import KINDS
from tests.compat.records import RECORDS

FOLDER = Path(__file__).parent / f"schema-{SCHEMA_VERSION}"
OPTIONS = json_util.JSONOptions(
    json_mode=json_util.JSONMode.CANONICAL,
    tz_aware=True,
    tzinfo=UTC,
    uuid_representation=UuidRepresentation.STANDARD,
)


def paths() -> Iterator[tuple[Path, str, str]]:
    """Yield the file of each record, its collection and its name."""
    for collection, records in RECORDS.items():
        for name in records:
            yield FOLDER / collection / f"{name}.json", collection, name


def freeze() -> None:
    """Write what is missing."""
    for path, collection, name in paths():
        encode = KINDS[collection].encode
        if encode is not None and not path.exists():
            document = encode(RECORDS[collection][name])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json_util.dumps(document, indent=2, json_options=OPTIONS) + "\n")
            print(f"wrote {path.relative_to(FOLDER.parent)}")  # noqa: T201 - this is a script


if __name__ == "__main__":
    freeze()
