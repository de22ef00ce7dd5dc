"""The choice of the event loop."""

import asyncio
import sys

import pytest

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.worker.event_loop import EventLoop, loop_factory
from tests.support.cli import CommandLine, restored_logging

__all__ = ["restored_logging"]

PROCESSES = [
    ["--instance-name", "worker-1"],
    ["serve"],
    ["relay", "--relay-sink", "stdout"],
]
"""The commands that run until they are stopped."""


def module_of(choice: EventLoop) -> str:
    loop = loop_factory(choice)()
    try:
        return type(loop).__module__.partition(".")[0]
    finally:
        loop.close()


@pytest.fixture
def no_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)


def test_uvloop_is_used_where_it_is_installed() -> None:
    pytest.importorskip("uvloop")

    assert module_of(EventLoop.AUTO) == "uvloop"
    assert module_of(EventLoop.UVLOOP) == "uvloop"


def test_the_standard_loop_can_be_chosen() -> None:
    assert module_of(EventLoop.ASYNCIO) == asyncio.__name__


@pytest.mark.usefixtures("no_uvloop")
def test_without_uvloop_the_standard_loop_is_used() -> None:
    assert module_of(EventLoop.AUTO) == asyncio.__name__


@pytest.mark.usefixtures("no_uvloop")
def test_asking_for_uvloop_where_there_is_none_says_how_to_get_it() -> None:
    with pytest.raises(ConfigurationError, match=r"kikwiflow-worker\[uvloop\]"):
        loop_factory(EventLoop.UVLOOP)


@pytest.mark.usefixtures("no_uvloop", "restored_logging")
@pytest.mark.parametrize("command", PROCESSES, ids=["worker", "serve", "relay"])
def test_every_process_runs_on_the_loop_that_it_is_told(command: list[str]) -> None:
    nowhere = "mongodb://127.0.0.1:1/?timeoutMS=100"
    told = [*command, "--event-loop", "uvloop", "--mongodb-uri", nowhere]

    refused = CommandLine().run(*told)

    assert refused.exit_code == 78
    assert "uvloop is not installed" in refused.stderr
