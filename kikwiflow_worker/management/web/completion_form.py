"""The small form with which a person completes an external task, made from the definition."""

from collections.abc import Mapping
from dataclasses import dataclass

from kikwiflow_worker.management.web.reading import read_object, read_value
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.nodes import ExclusiveGateway, GatewayProvider, SequenceFlow

_TRUTH = {"true": "false", "false": "true"}
_PREFIX = "decide-"
MORE = "variables"
"""The field for any other variables, as a JSON object."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer; ``value`` is what the form sends, as JSON or text."""

    value: str
    label: str


@dataclass(frozen=True, slots=True)
class Decision:
    """A variable that the gateway behind the task reads, and the answers that its flows expect.

    Attributes:
        question: What the gateway is called.
        takes_others: Whether any other answer leads somewhere as well.
    """

    variable: str
    question: str
    choices: tuple[Choice, ...]
    takes_others: bool

    @property
    def field(self) -> str:
        """The name of the form's field."""
        return f"{_PREFIX}{self.variable}"


def decisions_of(definition: ProcessDefinition | None, node_id: str) -> tuple[Decision, ...]:
    """Return what the person decides: one for each variable that a gateway right behind the task reads."""
    node = definition.flow_nodes.get(node_id) if definition else None
    if definition is None or node is None:
        return ()
    found: dict[str, Decision] = {}
    for flow in node.outgoing:
        gateway = definition.flow_nodes.get(flow.target_node_id or "")
        if (
            isinstance(gateway, ExclusiveGateway)
            and gateway.provider_type is GatewayProvider.VARIABLE
            and gateway.provider_variable
        ):
            found.setdefault(gateway.provider_variable, _decision(gateway))
    return tuple(found.values())


def values_in(decisions: tuple[Decision, ...], form: Mapping[str, str]) -> dict[str, object]:
    """Return the variables that a form sets; a decision that was left open sets nothing.

    Raises:
        OperationError: A value cannot be read; the message names its field.
    """
    values = read_object("More variables", form.get(MORE, ""))
    for decision in decisions:
        given = form.get(decision.field, "").strip()
        if given:
            values[decision.variable] = read_value(decision.variable, given)
    return values


def _decision(gateway: ExclusiveGateway) -> Decision:
    expected: dict[str, Choice] = {}
    for flow in gateway.outgoing:
        if flow.expected_answer is not None:
            expected.setdefault(flow.expected_answer, _choice(flow.expected_answer, flow))
    default = next((flow for flow in gateway.outgoing if flow.is_default), None)
    choices = list(expected.values())
    is_yes_or_no = bool(expected) and expected.keys() <= _TRUTH.keys()
    if is_yes_or_no and default is not None:
        choices += [
            _choice(other, default)
            for answer, other in _TRUTH.items()
            if answer in expected and other not in expected
        ]
    return Decision(
        variable=gateway.provider_variable or "",
        question=gateway.name or gateway.id,
        choices=tuple(choices),
        takes_others=default is not None and not is_yes_or_no,
    )


def _choice(answer: str, flow: SequenceFlow) -> Choice:
    label = f"{flow.name} ({answer})" if flow.name and flow.name != answer else answer
    return Choice(answer, label)
