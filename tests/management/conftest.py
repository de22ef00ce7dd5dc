"""The application over a prepared database on the real server."""

from tests.support.management import managed
from tests.support.stores import data, prepared_database

__all__ = ["data", "managed", "prepared_database"]
