"""A prepared database on the real server for the tests that need one."""

from tests.support.stores import data, keeper, leaking_driver, prepared_database

__all__ = ["data", "keeper", "leaking_driver", "prepared_database"]
