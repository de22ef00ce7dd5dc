"""Every test here runs over each driver, on a real replica set."""

from tests.support.stores import client, data, keeper, prepared_database, store

__all__ = ["client", "data", "keeper", "prepared_database", "store"]
