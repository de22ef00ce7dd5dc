"""The chaos run in short: a few mixed faults under a small load, and the verifier at the end.

Everything else about it needs minutes: ``make chaos``.
"""

import sys
from pathlib import Path

import pytest

from kikwiflow_worker.embedded import find_mongod
from kikwiflow_worker.errors import ConfigurationError
from tests.chaos import full_disk
from tests.chaos.run import Options, Run
from tests.chaos.schedule import Fault, Kind

SEED = 1
TASKS = 250
BACKLOG = 10
KINDS = (
    Kind.COMMIT_REPLY_LOST,
    Kind.WORKER_KILLED,
    Kind.PRIMARY_STEPS_DOWN,
    Kind.WRITE_CONFLICT,
    Kind.NETWORK_RESETS,
    Kind.COMMIT_NOT_CONFIRMED,
    Kind.NETWORK_ONE_WAY,
    Kind.CLAIM_REPLY_LOST,
)
"""Those that are over in a second."""

pytestmark = [pytest.mark.acceptance, pytest.mark.mongo]


@pytest.fixture(autouse=True)
def _needs_mongod() -> None:
    try:
        find_mongod()
    except ConfigurationError as error:
        pytest.skip(str(error))


@pytest.mark.timeout(120)
def test_nothing_is_lost_or_doubled_under_a_few_mixed_faults(tmp_path: Path) -> None:
    faults = tuple(
        Fault(number, at_s=number * 0.7, kind=kind, target=number, lasts_s=1.0, times=1)
        for number, kind in enumerate(KINDS, 1)
    )
    options = Options(
        seed=SEED,
        tasks=TASKS,
        minutes=0.1,
        workers=2,
        backlog=BACKLOG,
        folder=tmp_path,
        faults=faults,
        command="make test",
    )

    figures = Run(options, lambda line: None).execute()

    sys.stdout.write(f"\n{figures}\n")
    assert not figures.wrong
    assert figures.tasks >= TASKS
    assert sum(figures.faults.values()) >= len(KINDS) - 2, "those of commands may find none to hit"


@pytest.mark.timeout(120)
@pytest.mark.deep
async def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    found = await full_disk.run(tmp_path, seed=SEED, tasks=TASKS)

    sys.stdout.write(f"\n{found}\n")
    assert found.is_good
