"""One run of the load for all tests of the verifier."""

from tests.chaos.verify_planting import ended_run, run

__all__ = ["ended_run", "run"]
