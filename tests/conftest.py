"""Fixtures that every test may ask for."""

from tests.support.mongo import database_name, mongo_server, mongo_uri

__all__ = ["database_name", "mongo_server", "mongo_uri"]
