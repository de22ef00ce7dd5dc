"""The verifier finds an engine that is broken: real workers with a fault in their code, and what it says about them."""

import asyncio
import os
from pathlib import Path
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.chaos.verify import lines_of, verify
from tests.chaos.verify_trial import drive, two_workers
from tests.support.mongo import MongoServer
from tests.support.workers import Json

IS_DEEP = os.environ.get("KIKWIFLOW_TEST_DEEP") == "1"

pytestmark = [
    pytest.mark.deep,
    pytest.mark.mongo,
    pytest.mark.acceptance,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not IS_DEEP, reason="half a minute for each fault; test_verify plants them"),
]

FAULTS = {
    "a join goes on while a branch is still under way": (
        """
from kikwiflow_worker.store.mongo import arrivals

_right = arrivals.pull_pipeline


def _wrong(arrived):
    pipeline = _right(arrived)
    for name in ("status", "claimableAt"):
        pipeline[1]["$set"][name]["$cond"][0] = {"$lte": [{"$size": "$pendingBranchIds"}, 1]}
    return pipeline


arrivals.pull_pipeline = _wrong
""",
        ("doubled", "was released before 1 of its branches"),
    ),
    "now and then a commit forgets its successors": (
        """
from kikwiflow_worker.model.unit_of_work import InsertTask
from kikwiflow_worker.store.mongo import writes

_right = writes.Writes.insert
_commits = count(1)


async def _wrong(self, changes, *, session=None):
    if next(_commits) % 40 == 0:
        changes = [change for change in changes if not isinstance(change, InsertTask)]
    await _right(self, changes, session=session)


writes.Writes.insert = _wrong
""",
        ("lost", "was removed, and nothing follows it"),
    ),
    "a change of variables is written twice": (
        """
from kikwiflow_worker.model.unit_of_work import ChangeVariables
from kikwiflow_worker.store.mongo import writes

_right = writes.Writes._change


async def _wrong(self, change, *, session):
    if isinstance(change, ChangeVariables):
        await _right(self, change, session=session)
    return await _right(self, change, session=session)


writes.Writes._change = _wrong
""",
        ("doubled", "was committed 2 times"),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_engine_is_found(mongo_server: MongoServer, tmp_path: Path, name: str) -> None:
    fault, (kind, words) = FAULTS[name]
    database = f"kikwi_test_broken_{uuid4().hex[:12]}"
    with MongoClient[Json](mongo_server.uri) as client:
        try:
            with two_workers(mongo_server, database, tmp_path, fault):
                asyncio.run(drive(mongo_server, database, tmp_path, rest_s=12))
            report = verify(
                mongo_server.uri,
                database,
                tmp_path / "effects.jsonl",
                tmp_path / "ledger.jsonl",
            )
        finally:
            client.drop_database(database)

    assert any(words in line for line in getattr(report, kind)), lines_of(report)
