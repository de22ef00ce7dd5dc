"""Whether a definition can run, and what its author should look at."""

from kikwiflow_worker.engine.boundary_rules import boundary_problems
from kikwiflow_worker.engine.findings import at, error, is_blank
from kikwiflow_worker.engine.graph_rules import graph_problems
from kikwiflow_worker.engine.node_rules import node_problems
from kikwiflow_worker.engine.privacy_rules import privacy_problems
from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.capability import Capabilities, Capability, HandlerKind
from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.model.limits import MAX_NODES
from kikwiflow_worker.model.nodes import (
    BoundaryInterruptiveCatchEvent,
    BoundaryInterruptiveTimer,
    CorrelationProvider,
    EventCatcher,
    EventThrower,
    ExclusiveGateway,
    ExecutableTaskNode,
    FlowNode,
    GatewayProvider,
    TimerProvider,
    TimerTaskNode,
)


def validate(definition: DefinitionFile) -> list[Problem]:
    """Return everything that keeps a definition from running, and everything that looks like a mistake.

    Whether handlers and providers exist is not looked at: a task whose handler no worker has waits for one that has it.

    Args:
        definition: A file that could be read, or a deployed version.
    """
    if len(definition.flow_nodes) > MAX_NODES:
        found = f"has {len(definition.flow_nodes):,} nodes, the limit is {MAX_NODES:,} (MAX_NODES)"
        return [error("flowNodes", found, "split the process with call activities")]
    problems: list[Problem] = []
    if is_blank(definition.key):
        problems.append(error("key", "is blank", "write the name under which versions are counted"))
    for node in definition.flow_nodes.values():
        problems += node_problems(node)
    problems += boundary_problems(definition)
    problems += graph_problems(definition)
    problems += privacy_problems(definition)
    return problems


def missing_handlers(definition: DefinitionFile, capabilities: Capabilities) -> list[Problem]:
    """Return an error for each handler and provider that ``capabilities`` lack.

    For a deploy by a process that has all handlers itself; otherwise a step without a handler waits for a worker. What has
    a topic is for programs that are installed nowhere.
    """
    return [
        error(
            at(node.id, "executor" if needed.kind is HandlerKind.TASK_HANDLER else "providerBean"),
            f"no {needed} is installed here",
            "install its distribution, or correct the name",
        )
        for node in definition.flow_nodes.values()
        if (needed := needed_capability(node)) is not None
        and needed not in capabilities
        and not (isinstance(node, ExecutableTaskNode) and node.is_external)
    ]


def needed_capability(node: FlowNode) -> Capability | None:
    """Return the user code that a node needs, if any."""
    match node:
        case ExecutableTaskNode(handler_name=str(name)):
            return Capability(HandlerKind.TASK_HANDLER, name)
        case ExclusiveGateway(provider_type=GatewayProvider.BEAN, provider_bean=str(name)):
            return Capability(HandlerKind.ANSWER_PROVIDER, name)
        case TimerTaskNode() | BoundaryInterruptiveTimer() if (
            node.provider_type is TimerProvider.BEAN and node.provider_bean
        ):
            return Capability(HandlerKind.DUE_DATE_PROVIDER, node.provider_bean)
        case EventCatcher() | EventThrower() | BoundaryInterruptiveCatchEvent() if (
            node.provider_type is CorrelationProvider.BEAN and node.provider_bean
        ):
            return Capability(HandlerKind.CORRELATION_KEYS_PROVIDER, node.provider_bean)
        case _:
            return None
