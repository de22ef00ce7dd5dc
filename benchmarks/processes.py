"""The definitions that are measured; their handlers are those of ``benchmarks/plugin``."""

import json
from typing import Any

Json = dict[str, Any]


def ring(steps: int = 10, *, handler: str = "no_op", key: str = "ring") -> str:
    """Return steps with a commit before each, the last of which leads to the first: work that never runs out."""
    names = [f"STEP_{number}" for number in range(steps)]
    nodes = [
        _task(name, handler, target, commitBefore=True)
        for name, target in zip(names, [*names[1:], names[0]], strict=True)
    ]
    return _file(key, _start(names[0]), *nodes)


def chain(steps: int) -> str:
    """Return steps with a commit before each, and an end."""
    names = [f"STEP_{number}" for number in range(steps)]
    nodes = [
        _task(name, "no_op", target, commitBefore=True)
        for name, target in zip(names, [*names[1:], "END"], strict=True)
    ]
    return _file("chain", _start(names[0]), *nodes, _end())


def synchronous() -> str:
    """Return a step and a gateway that run in one go, from start to end."""
    gateway = _gateway("DECIDE", "END")
    return _file("synchronous", _start("STEP"), _task("STEP", "set_one", "DECIDE"), gateway, _end())


def single() -> str:
    """Return one step."""
    task = _task("STEP", "note_time", "END", commitBefore=True)
    return _file("single", _start("STEP"), task, _end())


def fan_out(branches: int) -> str:
    """Return a split into ``branches`` of one step each, and their join."""
    names = [f"BRANCH_{number}" for number in range(branches)]
    split = _node("SPLIT", "PARALLEL_GATEWAY", *names, targetJoinId="JOIN")
    tasks = [_task(name, "no_op", "JOIN", commitBefore=True) for name in names]
    join = _node("JOIN", "JOIN_GATEWAY", "END")
    return _file(f"fan_out_{branches}", _start("SPLIT"), split, *tasks, join, _end())


def inline(nodes: int) -> str:
    """Return handlers and gateways in turn, which the engine walks through without a stop."""
    names = [f"NODE_{number}" for number in range(nodes)]
    parts = [
        _task(name, "no_op", target) if number % 2 else _gateway(name, target)
        for number, (name, target) in enumerate(zip(names, [*names[1:], "END"], strict=True))
    ]
    return _file("inline", _start(names[0]), *parts, _end())


def _gateway(node_id: str, target: str) -> Json:
    """Return a gateway that takes its second flow, by the variable ``v3``."""
    gateway = _node(
        node_id, "EXCLUSIVE_GATEWAY", "END", target, providerType="VARIABLE", providerVariable="v3"
    )
    for flow, answer in zip(gateway["outgoing"], ("no", "3"), strict=True):
        flow["expectedAnswer"] = answer
    return gateway


def _task(node_id: str, handler: str, target: str, **fields: object) -> Json:
    return _node(node_id, "EXECUTABLE_TASK", target, executor=handler, **fields)


def _node(node_id: str, node_type: str, *targets: str, **fields: object) -> Json:
    outgoing = [{"id": f"{node_id}_{target}", "targetNodeId": target} for target in targets]
    return {"id": node_id, "type": node_type, "outgoing": outgoing, **fields}


def _start(target: str) -> Json:
    return _node("START", "DEFAULT_START_EVENT", target)


def _end() -> Json:
    return _node("END", "DEFAULT_END_EVENT")


def _file(key: str, *nodes: Json) -> str:
    flow_nodes = {node["id"]: node for node in nodes}
    return json.dumps({"key": key, "defaultStartPoint": "START", "flowNodes": flow_nodes})
