"""The demonstration that ``make demo`` runs, in a smaller size."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kikwiflow_worker.embedded import find_mongod
from kikwiflow_worker.errors import ConfigurationError

ROOT = Path(__file__).parents[2]


@pytest.mark.acceptance
@pytest.mark.timeout(120)
def test_the_demonstration_comes_out_right_and_leaves_no_process_behind(tmp_path: Path) -> None:
    try:
        find_mongod()
    except ConfigurationError as error:
        pytest.skip(str(error))

    result = subprocess.run(
        [sys.executable, ROOT / "demo" / "run.py", "--instances", "40"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
        check=False,
    )

    shown = result.stdout
    assert result.returncode == 0, shown
    assert "all 40 instances ended, and nothing is left behind" in shown
    assert re.search(r"kill -9 \d+   demo-1 dies and leaves [1-9]\d* tasks locked", shown), shown
    assert "✘" not in shown
    assert "\x1b" not in shown
    assert [pid for pid in re.findall(r"\(pid (\d+)\)", shown) if _is_running(int(pid))] == []
    shutil.rmtree(tmp_path)


def _is_running(pid: int) -> bool:
    """A process that has ended but that its parent has not asked about yet does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
