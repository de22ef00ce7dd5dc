"""Every row of the suite, on our own files and on those of the Java engine, on MongoDB and in memory."""

from collections.abc import Iterable

import pytest
from pymongo.database import Database

from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.testing import ManualClock
from tests.conformance.bench import Bench
from tests.conformance.row import Row
from tests.conformance.suite import ROWS
from tests.support.conformance import fixture_keys, skip_reason
from tests.support.stores import Json

HAS_FIXTURES = bool(fixture_keys())


def cases(*, mongodb: bool) -> list[object]:
    return list(_cases(mongodb=mongodb))


def _cases(*, mongodb: bool) -> Iterable[object]:
    for row in ROWS:
        if row.mongodb_only and not mongodb:
            continue
        yield pytest.param(row, False, id=f"{row.id}-own")
        if row.has_java:
            skip = pytest.mark.skipif(not HAS_FIXTURES, reason=skip_reason())
            yield pytest.param(row, True, id=f"{row.id}-java", marks=skip)


async def run(bench: Bench, row: Row) -> None:
    try:
        await bench.deploy()
        for step in row.steps:
            await step.take(bench)
    finally:
        bench.close()


@pytest.mark.mongo
@pytest.mark.parametrize(("row", "java"), cases(mongodb=True))
async def test_a_row_holds_on_mongodb(
    row: Row, java: bool, mongo_store: MongoStore, data: Database[Json]
) -> None:
    await run(Bench(mongo_store, SystemClock(), row, java=java, data=data), row)


@pytest.mark.parametrize(("row", "java"), cases(mongodb=False))
async def test_a_row_holds_in_memory(row: Row, java: bool, memory_store: MongoStore) -> None:
    await run(Bench(memory_store, ManualClock(), row, java=java), row)
