"""Call activities: one child instance, or one for each element of a list (core reference 3.16, protocol R12)."""

from dataclasses import replace

from kikwiflow_worker.engine.asking import PathState, Steps, fail
from kikwiflow_worker.engine.attachments import attach_boundary_events
from kikwiflow_worker.engine.draft import Draft
from kikwiflow_worker.engine.effects import fatal_failure
from kikwiflow_worker.engine.visits import Visit, derived_id, part_id
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.limits import MAX_CALL_DEPTH, MAX_CHILDREN
from kikwiflow_worker.model.nodes import CallActivity, IterationMode
from kikwiflow_worker.model.runtime import (
    Branch,
    ExecutableTask,
    HostKind,
    Loop,
    Parent,
    ProcessInstance,
    TaskType,
)
from kikwiflow_worker.model.variable_rules import rules_for_children
from kikwiflow_worker.model.variables import Value, Variables, check_total

OUTPUTS = "kikwiflow.outputs"

CALL_ORIGIN = "CALL_ACTIVITY"


def call(draft: Draft, visit: Visit, node: CallActivity) -> Steps:
    """Add the rows of a call activity and of its boundary events; a failure stays with the node; always rests.

    Raises:
        StepFailed: The node is the head of a claimed task and failed.
        StepFailedError: It failed and a caller drives the segment.
    """
    try:
        elements = elements_of(node, draft.variables.visible())
    except ExecutionError as error:
        fail(draft, visit, fatal_failure(error))
        return PathState.RESTED
    waiting = replace(visit, id=derived_id(visit.id, node.id), head=None)
    call_children(draft, waiting, node, elements)
    return (yield from attach_boundary_events(draft, waiting, HostKind.EXECUTABLE_TASK))


def elements_of(node: CallActivity, variables: Variables) -> tuple[Value, ...]:
    """Return what the children are started for: one None without a collection, else the elements of the list.

    Raises:
        ExecutionError: The variable holds no list, or a longer one than ``MAX_CHILDREN``.
    """
    if node.collection_variable is None:
        return (None,)
    found = variables.get(node.collection_variable)
    if not isinstance(found, list):
        raise ExecutionError(
            f"call activity {node.id} needs a list in variable {node.collection_variable!r}; set it and retry"
        )
    if len(found) > MAX_CHILDREN:
        raise ExecutionError(
            f"call activity {node.id} would start {len(found):,} children, the limit is {MAX_CHILDREN:,} (MAX_CHILDREN); "
            "split the list"
        )
    return tuple(found)


def call_children(
    draft: Draft, coordinator: Visit, node: CallActivity, elements: tuple[Value, ...]
) -> None:
    """Add the coordinator and the starters that run now: all, or the first of a sequence."""
    sequential = node.iteration_mode is IterationMode.SEQUENTIAL
    starting = elements[:1] if sequential else elements
    for index, element in enumerate(starting):
        add_starter(draft, coordinator, index, element)
    pending = tuple(branch_of(coordinator.id, index).id for index in range(len(starting)))
    rest = elements[1:] if sequential else ()
    draft.rest_at_join(coordinator, pending=pending, loop=Loop(0, pending=rest))


def add_starter(draft: Draft, coordinator: Visit, index: int, element: Value) -> None:
    """Add the task that starts the child for one element."""
    branch = branch_of(coordinator.id, index)
    starter = replace(
        coordinator,
        id=part_id(coordinator.id, f"starter#{index}"),
        task_type=TaskType.CALL_ACTIVITY_STARTER,
        branch=branch,
    )
    draft.rest_at_starter(starter, Loop(index, element=(element,)))


def outputs_of(node: CallActivity) -> tuple[tuple[str, str], ...]:
    """Return which variables of a child its parent gets, by the property ``kikwiflow.outputs``.

    It lists names, ``total, decision=approval``: the child's, and the parent's where it is another one. Without it nothing
    comes back, as in the Java engine. Of several children the last to end wins.
    """
    entries = [entry.strip() for entry in node.extension_properties.get(OUTPUTS, "").split(",")]
    pairs = [entry.partition("=") for entry in entries if entry]
    return tuple((own.strip(), theirs.strip() or own.strip()) for own, _, theirs in pairs)


def branch_of(coordinator_task_id: str, index: int) -> Branch:
    """Return the branch by which the child of an element reports to its coordinator."""
    return Branch(f"{coordinator_task_id}:{index}", coordinator_task_id)


def new_child(
    parent: ProcessInstance,
    starter: ExecutableTask,
    node: CallActivity,
    definition: ProcessDefinition,
    draft: Draft,
) -> ProcessInstance:
    """Return the child that a starter starts; its id is derived, so a repeated starter starts the same one.

    A starter whose child was cancelled counts that as an occurrence, and starts another one.

    Raises:
        ExecutionError: Call activities are nested deeper than ``MAX_CALL_DEPTH``.
        VariableTooLargeError: With its element the child would pass the limit of an instance.
    """
    depth = parent.parent.depth + 1 if parent.parent else 1
    if depth > MAX_CALL_DEPTH:
        raise ExecutionError(
            f"call activity {node.id} is nested {depth} deep, the limit is {MAX_CALL_DEPTH} (MAX_CALL_DEPTH); "
            "does the process call itself without end?"
        )
    loop, branch = starter.loop, starter.branch
    if loop is None or branch is None or branch.join_task_id is None:
        raise ExecutionError(f"starter {starter.id} does not say which child it starts")
    variables = dict(parent.variables)
    if node.collection_variable and node.element_variable:
        variables[node.element_variable] = loop.element[0]
    check_total(variables, before=parent.variables)
    suffix = f"#{loop.index}" if node.collection_variable is not None else ""
    return ProcessInstance(
        id=derived_id(starter.id, f"child#{starter.occurrence or 0}"),
        business_key=parent.business_key + suffix,
        definition_id=definition.id,
        definition_key=definition.key,
        definition_version=definition.version,
        started_at=draft.now,
        variables=variables,
        tenant_id=parent.tenant_id,
        origin=CALL_ORIGIN,
        started_by=parent.started_by,
        priority=parent.priority,
        parent=Parent(
            instance_id=parent.id,
            coordinator_task_id=branch.join_task_id,
            branch_id=branch.id,
            starter_task_id=starter.id,
            depth=depth,
            outputs=outputs_of(node),
        ),
        inherited_rules=rules_for_children(parent, draft.definition),
    )
