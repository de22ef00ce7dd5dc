"""Which correlation keys a node waits for or delivers."""

from decimal import Decimal

import pytest

from kikwiflow_worker.engine.correlation_keys import CorrelationItem, resolve_keys
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.model.nodes import (
    BoundaryInterruptiveCatchEvent,
    EventCatcher,
    EventThrower,
)
from kikwiflow_worker.model.variables import Value
from tests.support.definitions import Json


def a_catcher(**fields: object) -> EventCatcher:
    return EventCatcher.model_validate(
        {"id": "WAIT", "type": "EVENT_CATCHER", "catchType": "STANDALONE", **fields}
    )


def a_group(**fields: object) -> EventCatcher:
    return a_catcher(catchType="GROUP", **fields)


def a_boundary_catch(**fields: object) -> BoundaryInterruptiveCatchEvent:
    return BoundaryInterruptiveCatchEvent.model_validate(
        {"id": "CANCEL", "type": "BOUNDARY_INTERRUPTIVE_CATCH_EVENT", **fields}
    )


def a_thrower(**fields: object) -> EventThrower:
    return EventThrower.model_validate({"id": "TELL", "type": "EVENT_THROWER", **fields})


def from_variable(name: str = "orders", **fields: object) -> Json:
    return {"providerType": "VARIABLE", "providerVariable": name, **fields}


def literal(value: str | None) -> Json:
    return {"type": "LITERAL", "value": value}


def variable(name: str) -> Json:
    return {"type": "VARIABLE", "value": name}


def from_templates(*templates: Json) -> Json:
    return {"providerType": "TEMPLATE", "correlationTemplates": list(templates)}


def same(*keys: str) -> tuple[CorrelationItem, ...]:
    return tuple(CorrelationItem(key, key) for key in keys)


BEAN: Json = {"providerType": "BEAN", "providerBean": "open_orders"}


def test_a_static_key_is_the_key_and_its_label() -> None:
    node = a_catcher(providerType="STATIC", staticKey="PAID")

    assert resolve_keys(node, {}) == same("PAID")


def test_a_static_key_is_taken_verbatim_but_its_label_is_wrapped() -> None:
    node = a_catcher(
        providerType="STATIC",
        staticKey=" PAID ",
        keyPrefix="<",
        keySuffix=">",
        displayNamePrefix="Payment:",
    )

    assert resolve_keys(node, {}) == (CorrelationItem(" PAID ", "Payment: PAID "),)


@pytest.mark.parametrize("key", [None, "", "  "])
def test_a_blank_static_key_is_an_error(key: str | None) -> None:
    with pytest.raises(ExecutionError, match="node WAIT has a blank correlation key"):
        resolve_keys(a_catcher(providerType="STATIC", staticKey=key), {})


def test_a_variable_is_put_between_prefix_and_suffix() -> None:
    node = a_catcher(**from_variable("order", keyPrefix="ORDER_", keySuffix="_PAID"))

    assert resolve_keys(node, {"order": 9988}) == same("ORDER_9988_PAID")


@pytest.mark.parametrize(
    ("prefix", "suffix", "label"),
    [("Order ", None, "Order 7"), (None, " (paid)", "7 (paid)"), ("", None, "7")],
)
def test_a_label_of_a_variable_has_its_own_prefix_and_suffix(
    prefix: str | None, suffix: str | None, label: str
) -> None:
    node = a_catcher(
        **from_variable(
            "order", keyPrefix="ORDER_", displayNamePrefix=prefix, displayNameSuffix=suffix
        )
    )

    assert resolve_keys(node, {"order": 7}) == (CorrelationItem("ORDER_7", label),)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (50.0, "50.0"),
        (1e7, "1.0E7"),
        (Decimal("1.50"), "1.50"),
        ([1, 2], "[1, 2]"),
        ({"a": None}, "{a=null}"),
    ],
)
def test_a_value_is_written_as_the_java_engine_writes_it(value: Value, text: str) -> None:
    assert resolve_keys(a_catcher(**from_variable()), {"orders": value}) == same(text)


def test_a_group_has_one_key_for_each_element_in_order() -> None:
    node = a_group(**from_variable(keyPrefix="<", keySuffix=">", displayNameSuffix="!"))

    keys = resolve_keys(node, {"orders": ["B", "A"]})

    assert keys == (CorrelationItem("<B>", "B!"), CorrelationItem("<A>", "A!"))


def test_a_key_that_occurs_twice_is_waited_for_once() -> None:
    assert resolve_keys(a_group(**from_variable()), {"orders": ["A", "B", "A"]}) == same("A", "B")


def test_the_same_text_of_different_values_is_one_key() -> None:
    assert resolve_keys(a_group(**from_variable()), {"orders": [1, "1"]}) == same("1")


def test_a_null_element_of_a_group_is_the_text_null() -> None:
    assert resolve_keys(a_group(**from_variable()), {"orders": ["A", None]}) == same("A", "null")


def test_a_group_of_one_key_is_a_group() -> None:
    assert resolve_keys(a_group(**from_variable()), {"orders": ["A"]}) == same("A")


def test_a_group_takes_no_text_and_the_error_does_not_repeat_it() -> None:
    with pytest.raises(ExecutionError, match=r"variable 'orders', which is not a list") as raised:
        resolve_keys(a_group(**from_variable()), {"orders": "secret"})

    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("node", [a_catcher(**from_variable()), a_group(**from_variable())])
@pytest.mark.parametrize("variables", [{}, {"orders": None}])
def test_a_missing_or_null_variable_is_an_error_that_names_it(
    node: EventCatcher, variables: dict[str, Value]
) -> None:
    with pytest.raises(ExecutionError, match=r"WAIT .* variable 'orders', which is missing or nul"):
        resolve_keys(node, variables)


def test_an_empty_list_gives_no_keys_which_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="node WAIT has no correlation keys"):
        resolve_keys(a_group(**from_variable()), {"orders": []})


def test_a_blank_element_is_refused() -> None:
    with pytest.raises(ExecutionError, match="node WAIT has a blank correlation key"):
        resolve_keys(a_group(**from_variable()), {"orders": ["A", ""]})


def test_a_blank_value_with_a_prefix_is_a_key() -> None:
    assert resolve_keys(a_catcher(**from_variable(keyPrefix="X")), {"orders": ""}) == same("X")


def test_a_provider_gives_keys_and_labels_as_they_are() -> None:
    given = [CorrelationItem("1", "Order one"), CorrelationItem("2", "Order two")]
    node = a_group(**BEAN, keyPrefix="X", displayNamePrefix="Y")

    assert resolve_keys(node, {}, provided=given) == tuple(given)


def test_of_two_items_with_one_key_the_first_is_kept() -> None:
    given = [CorrelationItem("1", "first"), CorrelationItem("1", "second")]

    assert resolve_keys(a_catcher(**BEAN), {}, provided=given) == (CorrelationItem("1", "first"),)


def test_a_provider_that_gave_nothing_is_named() -> None:
    with pytest.raises(ExecutionError, match=r"WAIT .* provider 'open_orders', which gave none"):
        resolve_keys(a_group(**BEAN), {})


def test_a_provider_that_gave_an_empty_list_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="node WAIT has no correlation keys"):
        resolve_keys(a_group(**BEAN), {}, provided=[])


@pytest.mark.parametrize(
    "node",
    [
        a_catcher(**BEAN),
        a_boundary_catch(**BEAN),
        a_thrower(**BEAN),
        a_catcher(**BEAN, catchType=None),
    ],
)
def test_only_a_group_may_have_two_keys(
    node: EventCatcher | EventThrower | BoundaryInterruptiveCatchEvent,
) -> None:
    with pytest.raises(ExecutionError, match=f"node {node.id} has 2 correlation keys where one is"):
        resolve_keys(node, {}, provided=same("A", "B"))


def test_a_template_joins_literals_and_variables_for_the_key_and_for_the_label() -> None:
    node = a_catcher(
        **from_templates(
            {
                "keySegments": [literal("ORDER_"), variable("order"), literal("_PAID")],
                "displayNameSegments": [literal("Order no. "), variable("order")],
            }
        )
    )

    keys = resolve_keys(node, {"order": 7.0})

    assert keys == (CorrelationItem("ORDER_7.0_PAID", "Order no. 7.0"),)


def test_each_template_of_a_group_is_a_key_and_without_label_segments_the_label() -> None:
    node = a_group(
        **from_templates(
            {"keySegments": [literal("A_"), variable("order")], "displayNameSegments": None},
            {"keySegments": [literal("B_"), variable("order")], "displayNameSegments": []},
        )
    )

    assert resolve_keys(node, {"order": 7}) == same("A_7", "B_7")


def test_a_literal_without_a_value_is_empty_and_anything_else_is_a_variable() -> None:
    untyped: Json = {"value": "order"}
    node = a_catcher(**from_templates({"keySegments": [literal(None), literal("#"), untyped]}))

    assert resolve_keys(node, {"order": 7}) == same("#7")


def test_no_templates_give_no_keys_which_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="node WAIT has no correlation keys"):
        resolve_keys(a_group(**from_templates()), {})


def test_a_template_without_segments_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="node WAIT has a blank correlation key"):
        resolve_keys(a_catcher(**from_templates({})), {})


@pytest.mark.parametrize("part", ["keySegments", "displayNameSegments"])
def test_a_template_names_the_variable_that_is_missing(part: str) -> None:
    template: Json = {"keySegments": [literal("A")], part: [literal("B"), variable("order")]}

    with pytest.raises(ExecutionError, match="variable 'order', which is missing or null"):
        resolve_keys(a_catcher(**from_templates(template)), {"order": None})


def test_a_boundary_catch_event_has_a_static_key() -> None:
    node = a_boundary_catch(providerType="STATIC", staticKey="STOP")

    assert resolve_keys(node, {}) == same("STOP")


def test_a_boundary_catch_event_puts_its_prefix_before_a_variable() -> None:
    node = a_boundary_catch(**from_variable("order", keyPrefix="CANCELAR_TASK_"))

    assert resolve_keys(node, {"order": "7"}) == same("CANCELAR_TASK_7")


@pytest.mark.parametrize(
    "node", [a_boundary_catch(**from_variable()), a_thrower(**from_variable())]
)
def test_outside_a_catcher_a_list_is_one_key(
    node: EventThrower | BoundaryInterruptiveCatchEvent,
) -> None:
    assert resolve_keys(node, {"orders": ["A", "B"]}) == same("[A, B]")


def test_a_node_that_names_no_source_is_an_error() -> None:
    with pytest.raises(ExecutionError, match="node WAIT does not say where its key comes from"):
        resolve_keys(a_catcher(), {})
