"""Definitions for tests: small ones built in place, and our own process files."""

import json
from pathlib import Path

from kikwiflow_worker.model.definition import DefinitionFile, ProcessDefinition, parse_definition

PROCESS_FOLDER = Path(__file__).parent / "processes"

Json = dict[str, object]


def a_flow(target: str, **fields: object) -> Json:
    """Return a sequence flow as JSON."""
    return {"targetNodeId": target, **fields}


def a_node(node_id: str, node_type: str, *targets: str | Json, **fields: object) -> Json:
    """Return a node as JSON; a text among ``targets`` becomes a plain flow."""
    outgoing = [a_flow(target) if isinstance(target, str) else target for target in targets]
    return {"id": node_id, "type": node_type, "outgoing": outgoing, **fields}


def a_task(node_id: str, *targets: str, **fields: object) -> Json:
    """Return an executable task as JSON."""
    return a_node(node_id, "EXECUTABLE_TASK", *targets, **{"executor": "weigh_parcel", **fields})


def a_start(target: str = "TASK") -> Json:
    """Return a start event called START as JSON."""
    return a_node("START", "DEFAULT_START_EVENT", target)


def an_end(node_id: str = "END") -> Json:
    """Return an end event as JSON."""
    return a_node(node_id, "DEFAULT_END_EVENT")


def a_file(*nodes: Json, **fields: object) -> Json:
    """Return a definition file as JSON, each node under its own id; START -> TASK -> END without ``nodes``."""
    chosen = nodes or (a_start(), a_task("TASK", "END"), an_end())
    return {
        "key": "parcel",
        "defaultStartPoint": "START",
        "flowNodes": {str(node["id"]): node for node in chosen},
        **fields,
    }


def read(data: Json) -> DefinitionFile:
    """Return the definition that a JSON object holds."""
    return parse_definition(json.dumps(data)).file


def own_process_keys() -> list[str]:
    """Return the keys of our own process files, sorted."""
    return sorted(path.stem for path in PROCESS_FOLDER.glob("*.kikwi"))


def own_process(key: str, *, version: int = 1) -> ProcessDefinition:
    """Return one of our own process files as a deployed version; its id is ``key:version``."""
    path = PROCESS_FOLDER / f"{key}.kikwi"
    file = parse_definition(path.read_bytes(), name=path.name).file
    return file.deployed(definition_id=f"{key}:{version}", version=version)
