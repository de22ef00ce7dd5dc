"""The form that completes a person's task, made from the definition."""

import json

import pytest

from kikwiflow_worker.errors import OperationError
from kikwiflow_worker.management.web.completion_form import decisions_of, values_in
from kikwiflow_worker.model.definition import ProcessDefinition, parse_definition
from tests.support.definitions import Json, a_file, a_node, a_start, an_end


def approved_by(*flows: Json, provider: str = "VARIABLE") -> ProcessDefinition:
    gateway = a_node("IS_IT", "EXCLUSIVE_GATEWAY", name="Approved?", providerType=provider)
    gateway |= {"providerVariable": "approved", "outgoing": list(flows)}
    if provider == "BEAN":
        gateway |= {"providerBean": "decide"}
    nodes = (a_start("ASK"), a_node("ASK", "EXTERNAL_TASK", "IS_IT"), gateway, an_end())
    file = parse_definition(json.dumps(a_file(*nodes))).file
    return file.deployed(definition_id="ask:1", version=1)


YES: Json = {"id": "yes", "targetNodeId": "END", "name": "yes", "expectedAnswer": "true"}
ELSE: Json = {"id": "else", "targetNodeId": "END", "name": "no", "isDefault": True}
RELEASE: Json = {"id": "r", "targetNodeId": "END", "name": "released", "expectedAnswer": "RELEASE"}


def test_a_yes_or_no_gateway_behind_the_task_offers_both_answers() -> None:
    (decision,) = decisions_of(approved_by(YES, ELSE), "ASK")

    assert (decision.variable, decision.question) == ("approved", "Approved?")
    assert [(each.value, each.label) for each in decision.choices] == [
        ("true", "yes (true)"),
        ("false", "no (false)"),
    ]
    assert not decision.takes_others
    assert values_in((decision,), {decision.field: "false"}) == {"approved": False}


def test_a_gateway_that_expects_a_word_offers_it_and_takes_others() -> None:
    (decision,) = decisions_of(approved_by(RELEASE, ELSE), "ASK")

    assert [each.value for each in decision.choices] == ["RELEASE"]
    assert decision.takes_others
    assert values_in((decision,), {decision.field: "REJECT"}) == {"approved": "REJECT"}


def test_a_decision_that_is_left_open_sets_nothing() -> None:
    decisions = decisions_of(approved_by(RELEASE, ELSE), "ASK")

    assert values_in(decisions, {"variables": ""}) == {}


def test_a_provider_in_code_and_an_unknown_node_ask_for_nothing() -> None:
    assert decisions_of(approved_by(YES, ELSE, provider="BEAN"), "ASK") == ()
    assert decisions_of(approved_by(YES, ELSE), "NOWHERE") == ()
    assert decisions_of(None, "ASK") == ()


def test_a_decision_wins_over_the_same_name_in_more_variables() -> None:
    decisions = decisions_of(approved_by(YES, ELSE), "ASK")
    form = {decisions[0].field: "true", "variables": '{"approved": false, "amount": 150}'}

    assert values_in(decisions, form) == {"approved": True, "amount": 150}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "must be a JSON object"),
        ('{"a": }', "not valid at line 1, column 7"),
        ("amount", "must be a JSON object"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_more_variables_that_are_no_object_are_refused(text: str, said: str) -> None:
    with pytest.raises(OperationError, match=said):
        values_in((), {"variables": text})
