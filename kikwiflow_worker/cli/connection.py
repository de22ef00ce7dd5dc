"""From settings to a database: the URI given, or an embedded server."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from kikwiflow_worker.embedded import EmbeddedMongo
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.settings import Settings
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo.outbox import OutboxOptions
from kikwiflow_worker.store.mongo.store import StoreOptions


@dataclass(frozen=True, slots=True)
class Address:
    """Where the database is."""

    uri: str
    database: str


@contextmanager
def database_address(settings: Settings) -> Iterator[Address]:
    """Return where the database is; an embedded one runs while the block lasts.

    Raises:
        ConfigurationError: Neither a URI nor ``--embedded`` is given, or the embedded server cannot be started.
    """
    if settings.embedded is not None:
        with EmbeddedMongo.acquire(settings.embedded, mongod=settings.mongod_path) as embedded:
            yield Address(embedded.uri, settings.mongodb_database)
        return
    if settings.mongodb_uri is None and settings.mongodb_uri_file is None:
        raise ConfigurationError(
            "no database is given; give one of\n"
            "  --mongodb-uri URI          or KIKWIFLOW_MONGODB_URI, a replica set: mongodb://host/?replicaSet=rs0\n"
            "  --mongodb-uri-file FILE    or KIKWIFLOW_MONGODB_URI_FILE, a file that holds the URI\n"
            "  --embedded [DIR]           a MongoDB of its own on this host, for development"
        )
    yield Address(settings.uri(), settings.mongodb_database)


def store_options(settings: Settings) -> StoreOptions:
    """Return the store's part of the settings.

    Raises:
        ConfigurationError: The encryption keys cannot be read.
    """
    key_file = settings.encryption_key_file
    return StoreOptions(
        retention=timedelta(days=settings.history_ttl_days),
        audit_retention=timedelta(days=settings.audit_ttl_days),
        allow_standalone=settings.allow_standalone,
        keys=KeyRing.read(key_file) if key_file else None,
        outbox=OutboxOptions(settings.events, timedelta(days=settings.events_ttl_days)),
    )
