"""Which flow an exclusive gateway takes."""

from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.nodes import ExclusiveGateway, SequenceFlow


def choose_flow(gateway: ExclusiveGateway, answer: str | None) -> SequenceFlow:
    """Return the flow for ``answer`` (core reference 3.8).

    None takes the first flow that handles null, never the default one. Any other answer takes the first flow that
    expects exactly this text, else the first default flow.

    Raises:
        ExecutionError: No flow fits.
    """
    if answer is None:
        fitting = [flow for flow in gateway.outgoing if flow.handles_null]
    else:
        fitting = [flow for flow in gateway.outgoing if flow.expected_answer == answer]
        fitting += [flow for flow in gateway.outgoing if flow.is_default]
    if not fitting:
        expected = sorted(
            {flow.expected_answer for flow in gateway.outgoing if flow.expected_answer is not None}
        )
        remedy = (
            "add a flow with handlesNull" if answer is None else "add that answer or a default flow"
        )
        said = "no answer (null)" if answer is None else "an answer that no flow expects"
        raise ExecutionError(
            f"gateway {gateway.id} got {said}; it expects {', '.join(expected) or 'nothing'}: {remedy}, "
            "or change the variable and retry"
        )
    return fitting[0]
