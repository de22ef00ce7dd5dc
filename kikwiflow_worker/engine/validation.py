"""Whether a definition can run, and what its author should look at."""

from collections.abc import Iterator

from kikwiflow_worker.engine.boundary_rules import boundary_problems
from kikwiflow_worker.engine.findings import at, error, is_blank
from kikwiflow_worker.engine.graph_rules import graph_problems
from kikwiflow_worker.engine.node_rules import node_problems
from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.model.nodes import NODE_CLASSES

ALL_TYPES = frozenset(NODE_CLASSES)
"""Every node type that a definition file can hold."""

SUPPORTED_TYPES = frozenset(
    {
        "DEFAULT_START_EVENT",
        "DEFAULT_END_EVENT",
        "EXECUTABLE_TASK",
        "EXTERNAL_TASK",
        "EXCLUSIVE_GATEWAY",
        "PARALLEL_GATEWAY",
        "JOIN_GATEWAY",
        "TIMER_TASK",
    }
)
"""The node types that this release runs."""


def validate(
    definition: DefinitionFile, *, supported_types: frozenset[str] = ALL_TYPES
) -> list[Problem]:
    """Return everything that keeps a definition from running, and everything that looks like a mistake.

    Whether handlers and providers exist is not looked at: a task whose handler no worker has waits for one that has it.

    Args:
        definition: A file that could be read, or a deployed version.
        supported_types: Node types outside of it are errors; at a deploy these are ``SUPPORTED_TYPES``.
    """
    problems: list[Problem] = []
    if is_blank(definition.key):
        problems.append(error("key", "is blank", "write the name under which versions are counted"))
    problems += _unsupported(definition, supported_types)
    for node in definition.flow_nodes.values():
        problems += node_problems(node)
    problems += boundary_problems(definition)
    problems += graph_problems(definition)
    return problems


def _unsupported(definition: DefinitionFile, supported_types: frozenset[str]) -> Iterator[Problem]:
    for node in definition.flow_nodes.values():
        if node.type not in supported_types:
            name = f" ({node.name})" if node.name else ""
            yield error(
                at(node.id, "type"),
                f"this release does not run {node.type} yet, the type of node {node.id!r}{name}",
                f"use only {', '.join(sorted(supported_types))}",
            )
