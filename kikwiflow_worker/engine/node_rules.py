"""What can be wrong with a node taken by itself: its own fields, not what it refers to."""

from collections import Counter
from collections.abc import Iterator

from kikwiflow_worker.engine.findings import at, error, is_blank, needed, warning
from kikwiflow_worker.engine.property_rules import property_problems
from kikwiflow_worker.engine.timing_rules import (
    recurrence_problems,
    retry_problems,
    timer_problems,
)
from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.limits import MAX_BRANCHES
from kikwiflow_worker.model.nodes import (
    BoundaryErrorHandler,
    BoundaryInterruptiveCatchEvent,
    BoundaryInterruptiveTimer,
    BoundaryNonInterruptiveTimer,
    CallActivity,
    CatchType,
    CorrelationProvider,
    EndEvent,
    EventCatcher,
    EventThrower,
    ExclusiveGateway,
    ExecutableTaskNode,
    FlowNode,
    GatewayProvider,
    JoinGateway,
    ParallelGateway,
    SegmentType,
    StartEvent,
    TimerTaskNode,
)

_IGNORES_COMMIT_BEFORE = (StartEvent, EndEvent, ExclusiveGateway, ParallelGateway, JoinGateway)
_IGNORES_COMMIT_AFTER = (EndEvent, ParallelGateway)


def node_problems(node: FlowNode) -> Iterator[Problem]:
    """Yield everything that is wrong with the fields of one node."""
    yield from _identity_problems(node)
    yield from _commit_problems(node)
    yield from _outgoing_problems(node)
    yield from property_problems(node)
    yield from _name_problems(node)
    match node:
        case ExecutableTaskNode():
            yield from _executable_problems(node)
        case ExclusiveGateway():
            yield from _gateway_problems(node)
        case TimerTaskNode() | BoundaryInterruptiveTimer():
            yield from timer_problems(node)
        case BoundaryNonInterruptiveTimer():
            yield from recurrence_problems(node)
        case EventCatcher() | EventThrower() | BoundaryInterruptiveCatchEvent():
            yield from _correlation_problems(node)
        case CallActivity():
            yield from _call_problems(node)
        case BoundaryErrorHandler() if node.error_code == "":
            yield warning(
                at(node.id, "errorCode"),
                "an empty errorCode matches only an error with an empty code",
                "leave errorCode out to catch every error",
            )
        case _:
            return


def _identity_problems(node: FlowNode) -> Iterator[Problem]:
    if is_blank(node.id):
        yield error(at(node.id), "the key of this node is blank", "give the node a name of its own")
    if node.declared_id is None or node.declared_id == node.id:
        return
    message = f"id is {node.declared_id!r} but the key in flowNodes is {node.id!r}"
    hint = f"write {node.id!r} in both places"
    found = warning if isinstance(node, EndEvent) else error
    yield found(at(node.id, "id"), message, hint)


def _commit_problems(node: FlowNode) -> Iterator[Problem]:
    if node.commit_before and isinstance(node, _IGNORES_COMMIT_BEFORE):
        yield warning(
            at(node.id, "commitBefore"),
            f"commitBefore has no effect on {node.type}",
            "set it on the next node that does work, or remove it",
        )
    if node.commit_after and isinstance(node, _IGNORES_COMMIT_AFTER):
        yield warning(
            at(node.id, "commitAfter"), f"commitAfter has no effect on {node.type}", "remove it"
        )


def _name_problems(node: FlowNode) -> Iterator[Problem]:
    """Yield the name of user code that no handler or provider can have."""
    fields = {"executor": "handler_name", "providerBean": "provider_bean"}
    for field, attribute in fields.items():
        name: str | None = getattr(node, attribute, None)
        if name is not None and ":" in name:
            yield error(
                at(node.id, field),
                f"{name!r} contains a colon, which no handler's name may",
                "rename the handler and write its new name",
            )


def _outgoing_problems(node: FlowNode) -> Iterator[Problem]:
    path = at(node.id, "outgoing")
    match node:
        case EndEvent():
            if node.outgoing:
                yield error(path, "an end event has an outgoing flow", "remove the flow")
            return
        case ParallelGateway():
            if not node.outgoing:
                yield error(path, "a split has no outgoing flow", "add one flow for each branch")
            if len(node.outgoing) > MAX_BRANCHES:
                found = (
                    f"{len(node.outgoing):,} branches, the limit is {MAX_BRANCHES:,} (MAX_BRANCHES)"
                )
                yield error(path, found, "start them with a call activity over a list")
        case ExclusiveGateway():
            return
        case _:
            if len(node.outgoing) > 1:
                yield error(
                    path,
                    f"{node.type} has {len(node.outgoing)} outgoing flows, only a gateway may have several",
                    "lead one flow to a PARALLEL_GATEWAY or an EXCLUSIVE_GATEWAY and branch there",
                )
            if not node.outgoing:
                yield warning(
                    path, "the path ends here without an end event", "add a flow to an end event"
                )
    for index, flow in enumerate(node.outgoing):
        if flow.expected_answer is not None or flow.is_default or flow.handles_null:
            yield warning(
                at(node.id, "outgoing", index),
                f"expectedAnswer, isDefault and handlesNull have no effect on a flow of {node.type}",
                "put an EXCLUSIVE_GATEWAY in between, or remove them",
            )


def _executable_problems(node: ExecutableTaskNode) -> Iterator[Problem]:
    if is_blank(node.handler_name):
        yield error(
            at(node.id, "executor"),
            "no handler is named",
            'name the handler to run, as "executor": "validate_expense"',
        )
    if node.retry_policy is not None:
        yield from retry_problems(node.id, node.retry_policy)


def _gateway_problems(node: ExclusiveGateway) -> Iterator[Problem]:
    match node.provider_type:
        case None:
            yield error(
                at(node.id, "providerType"),
                "nothing says where the answer comes from",
                "write BEAN and a providerBean, or VARIABLE and a providerVariable",
            )
        case GatewayProvider.BEAN:
            yield from needed(node.id, "providerBean", node.provider_bean)
        case GatewayProvider.VARIABLE:
            yield from needed(node.id, "providerVariable", node.provider_variable)
    yield from _route_problems(node)


def _route_problems(node: ExclusiveGateway) -> Iterator[Problem]:
    path = at(node.id, "outgoing")
    if not node.outgoing:
        yield error(path, "a gateway has no outgoing flow", "add one flow for each answer")
        return
    defaults = sum(flow.is_default for flow in node.outgoing)
    if defaults > 1:
        yield error(path, f"{defaults} flows are the default", "set isDefault on one of them")
    if defaults == 0:
        yield warning(
            path,
            "no flow is the default; an answer that no flow expects opens an incident",
            "set isDefault on one flow",
        )
    if sum(flow.handles_null for flow in node.outgoing) > 1:
        yield error(path, "several flows handle null", "set handlesNull on one of them")
    answers = Counter(flow.expected_answer for flow in node.outgoing)
    for index, flow in enumerate(node.outgoing):
        answer = flow.expected_answer
        if answer is not None and answers[answer] > 1:
            yield error(
                at(node.id, "outgoing", index, "expectedAnswer"),
                f"{answer!r} is expected by more than one flow",
                "keep one flow for each answer",
            )
        if answer is None and not flow.is_default and not flow.handles_null:
            yield warning(
                at(node.id, "outgoing", index),
                "this flow is never taken",
                "give it an expectedAnswer, isDefault or handlesNull",
            )


def _correlation_problems(
    node: EventCatcher | EventThrower | BoundaryInterruptiveCatchEvent,
) -> Iterator[Problem]:
    is_group = isinstance(node, EventCatcher) and node.catch_type is CatchType.GROUP
    match node.provider_type:
        case None:
            yield error(
                at(node.id, "providerType"),
                "nothing says where the correlation key comes from",
                "write STATIC, VARIABLE, TEMPLATE or BEAN, and the field that belongs to it",
            )
        case CorrelationProvider.STATIC:
            yield from needed(node.id, "staticKey", node.static_key)
            if is_group:
                yield error(
                    at(node.id, "providerType"),
                    "a GROUP needs many keys and STATIC gives one",
                    "use VARIABLE, TEMPLATE or BEAN, or make it STANDALONE",
                )
        case CorrelationProvider.VARIABLE:
            yield from needed(node.id, "providerVariable", node.provider_variable)
        case CorrelationProvider.BEAN:
            yield from needed(node.id, "providerBean", node.provider_bean)
        case CorrelationProvider.TEMPLATE:
            yield from _template_problems(node, is_group=is_group)
    if isinstance(node, EventCatcher) and node.catch_type is None:
        yield warning(
            at(node.id, "catchType"),
            "without a catchType the node behaves as a GROUP with one key",
            "write STANDALONE or GROUP",
        )


def _template_problems(
    node: EventCatcher | EventThrower | BoundaryInterruptiveCatchEvent, *, is_group: bool
) -> Iterator[Problem]:
    path = at(node.id, "correlationTemplates")
    templates = node.correlation_templates
    if not templates:
        yield error(path, "TEMPLATE has no templates", "write one template for each key")
    if len(templates) > 1 and not is_group:
        yield error(path, f"{len(templates)} templates where one key is allowed", "keep one")
    for index, template in enumerate(templates):
        if not template.key_segments:
            yield error(f"{path}[{index}].keySegments", "a key has no segments", "add segments")
        for position, segment in enumerate(template.key_segments):
            if segment.type is not SegmentType.LITERAL and is_blank(segment.value):
                yield error(
                    f"{path}[{index}].keySegments[{position}].value",
                    "a segment names no variable",
                    "write the variable's name, or make the segment a LITERAL",
                )


def _call_problems(node: CallActivity) -> Iterator[Problem]:
    yield from needed(node.id, "calledElement", node.called_element)
    if not is_blank(node.element_variable) and is_blank(node.collection_variable):
        yield error(
            at(node.id, "elementVariable"),
            "elementVariable has no effect without collectionVariable",
            "name the list in collectionVariable, or remove elementVariable",
        )
