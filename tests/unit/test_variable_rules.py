"""Who may read and write a variable, and what a deploy says about such rules."""

import pytest

from kikwiflow_worker.engine.validation import validate
from kikwiflow_worker.model.events import EventType
from kikwiflow_worker.model.identity import Role
from kikwiflow_worker.model.variable_rules import (
    MASKED_RULE,
    MASKED_TEXT,
    VariableRule,
    mask_error,
    mask_event,
    rules_of,
)
from tests.support.definitions import Json, a_file, a_node, a_start, an_end, read

EVERYBODY = frozenset(Role)
PROPERTY = "kikwiflow.variables.ssn"


def a_rule(readers: str, writers: str) -> VariableRule:
    return VariableRule(
        frozenset(map(Role, readers.split())), frozenset(map(Role, writers.split()))
    )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("masked", a_rule("", "")),
        ("masked; write=operator", a_rule("", "operator")),
        ("roles=operator,admin", a_rule("operator admin", "operator admin")),
        ("read = operator , admin ; write=admin", a_rule("operator admin", "admin")),
        ("read=operator", a_rule("operator", "operator")),
        ("write=admin", VariableRule(EVERYBODY, frozenset({Role.ADMIN}))),
        ("roles=", MASKED_RULE),
    ],
)
def test_a_rule_says_who_reads_and_who_writes(text: str, rule: VariableRule) -> None:
    assert VariableRule.parse(text) == rule
    assert VariableRule.parse(rule.text) == rule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no rule"),
        ("hidden", "'hidden' is no rule"),
        ("masked=yes", "'masked=yes' is no rule"),
        ("roles", "'roles' is no rule"),
        ("roles=boss", "'boss' is no role"),
        ("masked; roles=admin", "roles= stands alone"),
    ],
)
def test_what_is_no_rule_is_refused_at_deploy_and_masks_if_it_is_there_all_the_same(
    text: str, message: str
) -> None:
    file = read(a_file(a_start("END"), an_end(), extensionProperties={PROPERTY: text}))

    (problem,) = validate(file)

    assert problem.is_error
    assert problem.path == "extensionProperties.kikwiflow.variables.ssn"
    assert message in problem.message
    assert rules_of(file) == {"ssn": MASKED_RULE}


def test_a_rule_without_a_name_is_refused() -> None:
    file = a_file(a_start("END"), an_end(), extensionProperties={"kikwiflow.variables.": "masked"})

    (problem,) = validate(read(file))

    assert problem.message == "names no variable"


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"providerType": "VARIABLE", "providerVariable": "ssn"}, "providerVariable"),
        (
            {
                "providerType": "TEMPLATE",
                "correlationTemplates": [
                    {"keySegments": [{"type": "LITERAL", "value": "k-"}, {"type": "VARIABLE", "value": "ssn"}]}
                ],
            },
            "correlationTemplates[0].keySegments[1]",
        ),
        (
            {
                "providerType": "TEMPLATE",
                "correlationTemplates": [
                    {
                        "keySegments": [{"type": "LITERAL", "value": "k"}],
                        "displayNameSegments": [{"type": "VARIABLE", "value": "ssn"}],
                    }
                ],
            },
            "correlationTemplates[0].displayNameSegments[0]",
        ),
    ],
)  # fmt: skip
def test_a_masked_variable_makes_no_correlation_key(fields: Json, where: str) -> None:
    node = a_node("WAIT", "EVENT_CATCHER", "END", catchType="STANDALONE", **fields)

    def errors(rule: str) -> list[str]:
        file = a_file(a_start("WAIT"), node, an_end(), extensionProperties={PROPERTY: rule})
        return [problem.path for problem in validate(read(file)) if problem.is_error]

    assert errors("roles=operator") == [f"flowNodes.WAIT.{where}"]
    assert errors("roles=viewer") == []


def test_a_masked_variable_makes_no_due_date() -> None:
    node = a_node("WAIT", "TIMER_TASK", "END", providerType="VARIABLE", providerVariable="ssn")
    file = a_file(a_start("WAIT"), node, an_end(), extensionProperties={PROPERTY: "masked"})

    (problem,) = validate(read(file))

    assert problem.is_error
    assert problem.path == "flowNodes.WAIT.providerVariable"


def test_an_element_of_a_masked_list_should_be_masked_too() -> None:
    node = a_node(
        "EACH",
        "CALL_ACTIVITY_COORDINATOR",
        "END",
        calledElement="other",
        collectionVariable="ssns",
        elementVariable="ssn",
    )
    rules = {"kikwiflow.variables.ssns": "masked"}

    def warnings(properties: Json) -> list[str]:
        file = a_file(a_start("EACH"), node, an_end(), extensionProperties=properties)
        return [problem.path for problem in validate(read(file))]

    assert warnings(rules) == ["flowNodes.EACH.elementVariable"]
    assert warnings({**rules, PROPERTY: "masked"}) == []


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("ValueError: bad 123", f"ValueError: {MASKED_TEXT}"),
        ("app.errors.Refused: bad 123", f"app.errors.Refused: {MASKED_TEXT}"),
        ("123 is bad: see there", MASKED_TEXT),
        ("the value is 123", MASKED_TEXT),
        ("SECRET", MASKED_TEXT),
    ],
)
def test_of_a_message_the_kind_of_the_error_is_shown(message: str, shown: str) -> None:
    assert mask_error(message) == shown


def test_an_event_is_as_it_was_where_nothing_is_masked() -> None:
    payload = {"variables": {"ssn": 1}, "message": "ValueError: 1"}

    assert mask_event(EventType.PROCESS_INSTANCE_STARTED, payload, frozenset()) == payload
