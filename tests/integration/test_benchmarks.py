"""Every scenario of the benchmarks runs: in a form so small that its figures say nothing."""

from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from benchmarks.catalogue import SCENARIOS
from benchmarks.plan import TINY, Scenario
from benchmarks.report import Machine, markdown
from benchmarks.site import Site
from benchmarks.workers import install_handlers
from tests.support.mongo import MongoServer

MACHINE = Machine("a processor", 2, "Linux", "3.11", "4.18", "6.0", "asyncio")


@pytest.fixture
def site(mongo_server: MongoServer, tmp_path: Path) -> Iterator[Site]:
    install_handlers(tmp_path / "packages")
    with MongoClient[dict[str, Any]](mongo_server.uri, tz_aware=True, tzinfo=UTC) as client:
        yield Site(tmp_path, mongo_server.uri, client)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_scenario_runs_alone(site: Site, scenario: Scenario) -> None:
    section = await scenario.run(site, TINY)

    assert section.figures
    assert sum(figure.value for figure in section.figures) > 0
    assert markdown([section], MACHINE, rounds=1).count("\n| ") > len(section.figures)
