"""Schemathesis finds nothing: every answer of the running server is one that the API's description allows."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from tests.support.dead_letters import store_dead_letter
from tests.support.docs import ROOT
from tests.support.management import a_token, manage
from tests.support.mongo import MongoServer
from tests.support.running_management import running_management
from tests.support.workers import DEEP

FOLDER = Path(__file__).parent
CONFIG = FOLDER / "schemathesis.toml"


async def seed(uri: str, data: Database[dict[str, Any]]) -> None:
    """Store parcels in every state, so that lists hold something and links lead somewhere."""
    async with manage(uri, data) as managed:
        for number in range(3):
            await managed.a_waiting_parcel(f"WAITING-{number}")
            await managed.a_failed_parcel(f"FAILED-{number}")
        ended = await managed.an_ended_parcel("ENDED-1")
        for number in range(3):
            store_dead_letter(data, f"dead-{number}", ended.id, ended.definition_id)
        await a_token(managed)


def found_by(url: str, folder: Path, *arguments: str, within_s: float) -> str:
    """Run Schemathesis with all checks on all operations; return its report, or nothing if it found nothing."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            str(CONFIG),
            "run",
            url,
            *arguments,
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.management.schemathesis_hooks",
        },
        capture_output=True,
        text=True,
        timeout=within_s,
        check=False,
    )
    assert "Tested:" in done.stdout, done.stdout + done.stderr
    assert "Skipped:" not in done.stdout, done.stdout
    return "" if done.returncode == 0 else done.stdout


@pytest.mark.mongo
def test_schemathesis_finds_nothing_in_a_few_seconds(
    mongo_server: MongoServer, data: Database[dict[str, Any]], tmp_path: Path
) -> None:
    asyncio.run(seed(mongo_server.uri, data))

    with running_management(mongo_server.uri, data.name) as server:
        report = found_by(
            f"{server.api}/openapi.json",
            tmp_path,
            *("--phases", "fuzzing,stateful", "--max-examples", "1", "--mode", "positive"),
            within_s=50,
        )

    assert report == ""


@pytest.mark.parametrize("seed_number", [1, 2])
@pytest.mark.timeout(1800)
@pytest.mark.mongo
@pytest.mark.deep
@DEEP[1]
def test_schemathesis_finds_nothing(
    mongo_server: MongoServer, data: Database[dict[str, Any]], tmp_path: Path, seed_number: int
) -> None:
    asyncio.run(seed(mongo_server.uri, data))

    with running_management(mongo_server.uri, data.name) as server:
        report = found_by(
            f"{server.api}/openapi.json",
            tmp_path,
            *("--phases", "examples,coverage,fuzzing,stateful"),
            *("--max-examples", "100", "--seed", str(seed_number)),
            within_s=1700,
        )

    assert report == ""
