"""Which flow an exclusive gateway takes."""

import pytest

from kikwiflow_worker.engine.gateways import choose_flow
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.nodes import ExclusiveGateway
from tests.support.definitions import Json, a_flow


def target(answer: str | None, *flows: Json) -> str | None:
    gateway = ExclusiveGateway.model_validate(
        {"id": "ROUTE", "type": "EXCLUSIVE_GATEWAY", "outgoing": list(flows)}
    )
    return choose_flow(gateway, answer).target_node_id


VAN = a_flow("VAN", expectedAnswer="van")
EMPTY = a_flow("EMPTY", expectedAnswer="")
OTHER = a_flow("OTHER", isDefault=True)
NOTHING = a_flow("NOTHING", handlesNull=True)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("van", "VAN"), ("", "EMPTY"), ("Van", "OTHER"), (" van", "OTHER"), (None, "NOTHING")],
)
def test_the_flow_that_expects_exactly_this_text_is_taken(
    answer: str | None, expected: str
) -> None:
    assert target(answer, OTHER, NOTHING, VAN, EMPTY) == expected


def test_an_expected_answer_wins_over_a_default_flow_that_comes_first() -> None:
    assert target("van", OTHER, VAN) == "VAN"


def test_a_default_flow_may_expect_an_answer_of_its_own() -> None:
    both = a_flow("BOTH", expectedAnswer="bike", isDefault=True)

    assert target("bike", VAN, both) == "BOTH"
    assert target("train", VAN, both) == "BOTH"


def test_the_first_of_several_fitting_flows_is_taken() -> None:
    again = a_flow("AGAIN", expectedAnswer="van", isDefault=True, handlesNull=True)

    assert target("van", VAN, again) == "VAN"
    assert target("van", again, VAN) == "AGAIN"
    assert target("bike", again, OTHER) == "AGAIN"
    assert target(None, NOTHING, again) == "NOTHING"


def test_no_answer_never_takes_the_default_flow() -> None:
    with pytest.raises(ExecutionError, match=r"ROUTE got no answer \(null\).*handlesNull"):
        target(None, OTHER, VAN)


def test_an_answer_that_no_flow_expects_is_an_error_that_does_not_repeat_it() -> None:
    with pytest.raises(ExecutionError, match=r"it expects bike, van: add that answer") as raised:
        target("secret", NOTHING, VAN, a_flow("BIKE", expectedAnswer="bike"))

    assert "secret" not in str(raised.value)


def test_a_gateway_that_expects_nothing_says_so() -> None:
    with pytest.raises(ExecutionError, match="it expects nothing"):
        target("van", NOTHING)
