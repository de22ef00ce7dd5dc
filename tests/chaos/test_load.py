"""The load's definitions can be deployed, and its seed decides what they are."""

import json
import random

import pytest

from kikwiflow_worker.operations.deployment import check_definition
from tests.chaos.load_builder import Process
from tests.chaos.load_processes import processes, variables, wide
from tests.chaos.load_shape import Beside, Called, OneOf, Reminded, Row, Shape, decode, encode

SEEDS = range(6)


def all_of(seed: int) -> list[Process]:
    return [each for _, process in [*processes(seed), (1, wide())] for each in process.family()]


@pytest.mark.parametrize("seed", SEEDS)
def test_all_definitions_can_be_deployed(seed: int) -> None:
    for process in all_of(seed):
        check_definition(json.dumps(process.file), name=process.key, capabilities=None)


def test_a_seed_makes_the_same_load_again() -> None:
    files = [[process.file for process in all_of(seed)] for seed in (1, 1, 2)]

    assert files[0] == files[1] != files[2]
    assert variables(random.Random("a"), "r/1") == variables(random.Random("a"), "r/1")


def test_every_kind_of_node_is_in_the_load() -> None:
    types = {
        node["type"]  # type: ignore[index, call-overload]
        for seed in SEEDS
        for process in all_of(seed)
        for node in process.file["flowNodes"].values()  # type: ignore[attr-defined]
    }

    assert types == {
        "DEFAULT_START_EVENT",
        "DEFAULT_END_EVENT",
        "EXECUTABLE_TASK",
        "EXTERNAL_TASK",
        "EXCLUSIVE_GATEWAY",
        "PARALLEL_GATEWAY",
        "JOIN_GATEWAY",
        "TIMER_TASK",
        "EVENT_CATCHER",
        "EVENT_THROWER",
        "CALL_ACTIVITY_COORDINATOR",
        "BOUNDARY_INTERRUPTIVE_TIMER",
        "BOUNDARY_NON_INTERRUPTIVE_TIMER",
        "BOUNDARY_ERROR_HANDLER",
        "BOUNDARY_INTERRUPTIVE_CATCH_EVENT",
    }


def test_a_shape_names_every_handler_that_can_run() -> None:
    """What a shape leaves out nobody would miss; only a handler for an error that is never raised may be."""
    for process in all_of(1):
        nodes = process.file["flowNodes"].values()  # type: ignore[attr-defined]
        handlers = {node["id"] for node in nodes if node["type"] == "EXECUTABLE_TASK"}
        never = {
            node["outgoing"][0]["targetNodeId"]
            for node in nodes
            if node.get("errorCode") == "OTHER"
        }
        assert set(names_of(process.shape)) == handlers - never, process.key


def test_a_shape_comes_back_from_the_ledger_as_it_was() -> None:
    for process in all_of(2):
        assert decode(json.loads(json.dumps(encode(process.shape)))) == process.shape


def names_of(shape: Shape) -> list[str]:
    match shape:
        case Row(parts) | Beside(parts) | OneOf(parts):
            return [name for part in parts for name in names_of(part)]
        case Called():
            return []
        case Reminded(node, _):
            return [node]
        case _:
            return [shape.node]
