"""The seam between the drivers: PyMongo's asynchronous client, Motor's, and mongomock's.

They share their names but not which methods are coroutines. ``settled`` evens that out; everything else is written once.
"""

import inspect
from collections.abc import Mapping
from datetime import UTC
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from bson.binary import UuidRepresentation
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

Document: TypeAlias = dict[str, Any]
Client: TypeAlias = Any
Database: TypeAlias = Any
Collection: TypeAlias = Any
Session: TypeAlias = Any

CODEC_OPTIONS: CodecOptions[Document] = CodecOptions(
    tz_aware=True,
    tzinfo=UTC,
    uuid_representation=UuidRepresentation.STANDARD,
    # A date that another program stored and no datetime can hold must not keep a whole document from being read.
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
MAJORITY = WriteConcern("majority")
MAJORITY_READ = ReadConcern("majority")
SNAPSHOT_READ = ReadConcern("snapshot")

CLIENT_OPTIONS: Mapping[str, Any] = {
    "appname": "kikwiflow-worker",
    "connectTimeoutMS": 5_000,
    "serverSelectionTimeoutMS": 5_000,
    # A primary that freezes answers nothing for ever: what was sent to it must be sent to the next one within seconds.
    "socketTimeoutMS": 5_000,
    "retryWrites": True,
}
"""What a client that we open starts with, unless its URI says otherwise.

Without ``timeoutMS``: it would replace the time limit that a claim gives the server (``claim_filters.CLAIM_TIME_MS``) by its
own, and run out on our side first, with nothing known about the claim.
"""


def client_options(uri: str, **more: Any) -> dict[str, Any]:
    """Return the options for a client of our own; the driver lets options win over the URI, we let the URI win."""
    query = urlsplit(uri).query.replace(";", "&")
    given = {name.lower() for name, _ in parse_qsl(query, keep_blank_values=True)}
    options = {**CLIENT_OPTIONS, **more}
    return {name: value for name, value in options.items() if name.lower() not in given}


BY_ID = "_id_"
"""Hint for what names its documents by ``_id`` and guards them by more: left to itself the server may take an index of a
guard, which was as fast when few rows matched, and keep to it until it reads ten times as many."""


async def settled(value: Any) -> Any:
    """Return ``value``, awaited if the driver at hand made it a coroutine or future."""
    return await value if inspect.isawaitable(value) else value


async def fetched(cursor: Any, most: int) -> list[Document]:
    """Return what a cursor finds, at most ``most`` documents, in one command unless they are very large."""
    documents: list[Document] = await cursor.limit(most).batch_size(most).to_list(most)
    return documents


def open_database(client: Client, name: str) -> Database:
    """Return the database with our concerns: majority writes and reads on the primary."""
    return client.get_database(
        name, codec_options=CODEC_OPTIONS, write_concern=MAJORITY, read_concern=MAJORITY_READ
    )
