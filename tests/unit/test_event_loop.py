"""The choice of the event loop."""

import asyncio
import sys

import pytest

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.worker.event_loop import EventLoop, loop_factory


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
