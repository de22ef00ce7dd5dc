"""A test run that is told to end leaves no server behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.mongo import SERVER_VARIABLE
from tests.support.workers import ROOT, wait_until

TEST = """
import asyncio

async def test_that_waits(mongo_server):
    print("uses", mongo_server.uri, flush=True)
    await asyncio.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_run_that_a_signal_ends_stops_its_server(tmp_path: Path, number: signal.Signals) -> None:
    (tmp_path / "test_waiting.py").write_text(TEST)
    output, base = tmp_path / "output", tmp_path / "base"
    options = ["-p", "tests.conftest", "-c", str(ROOT / "pyproject.toml"), "-p", "no:randomly"]
    with output.open("wb") as target:
        run = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-s", *options, f"--basetemp={base}", str(tmp_path)],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=target,
            stderr=subprocess.STDOUT,
            env={name: value for name, value in os.environ.items() if name != SERVER_VARIABLE},
        )
    try:
        wait_until(lambda: "uses mongodb" in output.read_text(), output.read_text)
        (pid_file,) = base.rglob("mongod.pid")
        server = Path(f"/proc/{pid_file.read_text().strip()}")
        was_running = server.exists()

        run.send_signal(number)
        run.wait(20)
    finally:
        run.kill()

    assert was_running
    wait_until(lambda: not server.exists(), "the server is gone", within_s=5)
    assert run.returncode == pytest.ExitCode.INTERRUPTED
