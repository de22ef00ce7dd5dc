"""Runs the command line inside the test's process."""

import json
import logging
import os
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kikwiflow_worker.cli.app import cli
from kikwiflow_worker.telemetry import reset_logging

Json = dict[str, Any]


class CommandLine:
    """The command ``kikwiflow-worker`` with an environment that holds nothing of ours but ``environ``."""

    def __init__(self, **environ: str) -> None:
        self.environ = environ

    def run(self, *arguments: str, stdin: str | None = None, **environ: str) -> Result:
        """Run the command and return what it printed and its exit code."""
        ours = {name: None for name in os.environ if name.startswith("KIKWIFLOW_")}
        env = {**ours, "COLUMNS": "100", **self.environ, **environ}
        return CliRunner().invoke(
            cli, arguments, input=stdin, env=env, prog_name="kikwiflow-worker"
        )

    def json(self, *arguments: str) -> Json:
        """Run a command that must succeed, and return the JSON it printed."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        document: Json = json.loads(result.stdout)
        return document


@pytest.fixture
def restored_logging() -> Iterator[None]:
    """Take back what a command does to the logging of its process."""
    root, driver = logging.getLogger(), logging.getLogger("pymongo")
    before = list(root.handlers), root.level, driver.level
    yield
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    driver.setLevel(before[2])
    reset_logging()
