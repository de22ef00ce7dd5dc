"""What authors of handlers work with."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from kikwiflow_worker.errors import VariableError
from kikwiflow_worker.handler import (
    EvaluationContext,
    ExecutionContext,
    Fatal,
    HandlerSignal,
    ProcessError,
    RetryLater,
    StepView,
    answer_provider,
    due_date_provider,
    find_spec,
    task_handler,
)
from kikwiflow_worker.model.capability import HandlerKind
from kikwiflow_worker.model.variables import (
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    Value,
)

VIEW = StepView(
    instance_id="instance-1",
    business_key="PARCEL-7",
    business_value=Decimal("12.50"),
    tenant_id="acme",
    definition_key="parcel",
    definition_version=3,
    node_id="WEIGH",
    node_name="Weigh",
    attempt=2,
    idempotency_key="visit-1",
)


def a_context(**variables: Value) -> ExecutionContext:
    return ExecutionContext(VIEW, variables)


def test_a_context_is_the_mapping_of_the_variables() -> None:
    context = EvaluationContext(VIEW, {"weight": 7, "carrier": None})

    assert context["weight"] == 7
    assert context.get("size", 3) == 3
    assert set(context) == {"weight", "carrier"}
    assert len(context) == 2
    assert "carrier" in context
    with pytest.raises(KeyError, match="size"):
        context["size"]


def test_a_context_knows_where_it_runs() -> None:
    context = EvaluationContext(VIEW, {})

    assert context.view is VIEW
    assert (context.instance_id, context.business_key) == ("instance-1", "PARCEL-7")
    assert (context.tenant_id, context.node_id) == ("acme", "WEIGH")
    assert (context.attempt, context.idempotency_key) == (2, "visit-1")


def test_a_context_does_not_show_its_variables_in_logs() -> None:
    assert repr(a_context(token="secret")) == "<ExecutionContext node=WEIGH instance=instance-1>"


def test_the_view_of_all_variables_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        a_context(weight=7).variables["weight"] = 8  # type: ignore[index]


def test_changes_are_seen_at_once_and_kept_in_order() -> None:
    context = a_context(old=1)

    context.set("weight", 7)
    context.increment("count")
    context.increment("count", 0.5)
    context.append("labels", ("a",))
    context.unset("old")
    context.unset("never")

    assert dict(context) == {"weight": 7, "count": 1.5, "labels": [["a"]]}
    assert context.changes == (
        SetVariable("weight", 7),
        IncrementVariable("count", 1),
        IncrementVariable("count", 0.5),
        AppendToVariable("labels", ["a"]),
        UnsetVariable("old"),
        UnsetVariable("never"),
    )


def test_a_value_is_seen_as_it_will_be_stored() -> None:
    context = a_context()

    context.set("at", datetime(2026, 3, 2, 12, 0, 0, 999, tzinfo=UTC))

    assert context["at"] == datetime(2026, 3, 2, 12, tzinfo=UTC)


def test_a_context_does_not_change_the_variables_it_was_given() -> None:
    given: dict[str, Value] = {"weight": 7}

    ExecutionContext(VIEW, given).set("weight", 8)

    assert given == {"weight": 7}


def test_a_transient_variable_is_seen_and_is_no_change() -> None:
    context = a_context()

    context.set("token", "secret", transient=True)
    context.set("weight", 7)

    assert context["token"] == "secret"
    assert context.transient == {"token": "secret"}
    assert context.changes == (SetVariable("weight", 7),)


def test_changing_a_transient_variable_keeps_it_transient() -> None:
    context = ExecutionContext(a_context().view, {"count": 5}, transient={"count"})

    context.increment("count")

    assert context["count"] == 6
    assert context.transient == {"count": 6}
    assert context.changes == ()


def test_unsetting_a_transient_variable_removes_the_stored_one_too() -> None:
    context = ExecutionContext(a_context().view, {"token": "old"})

    context.set("token", "secret", transient=True)
    context.unset("token")

    assert "token" not in context
    assert context.transient == {}
    assert context.changes == (UnsetVariable("token"),)


def test_changing_a_list_in_place_changes_nothing_outside() -> None:
    items: list[Value] = [1]
    context = ExecutionContext(a_context().view, {"items": items})

    found = context["items"]
    assert isinstance(found, list)
    found.append(2)

    assert items == [1]
    assert context.changes == ()


def test_a_transient_variable_that_is_set_again_is_stored() -> None:
    context = a_context()

    context.set("token", 1, transient=True)
    context.set("token", 2)

    assert context.transient == {}
    assert context.changes[-1] == SetVariable("token", 2)


def test_a_transient_variable_that_is_unset_is_gone() -> None:
    context = a_context()

    context.set("token", 1, transient=True)
    context.unset("token")

    assert "token" not in context
    assert context.transient == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda context: context.set("item", object()),
        lambda context: context.set("", 1),
        lambda context: context.unset(""),
        lambda context: context.increment("carrier"),
        lambda context: context.increment("weight", True),  # noqa: FBT003
        lambda context: context.append("weight", 1),
        lambda context: context.append("items", object()),
    ],
)
def test_a_change_that_is_refused_changes_nothing(change: object) -> None:
    context = a_context(weight=7, carrier="van")

    with pytest.raises(VariableError):
        change(context)  # type: ignore[operator]

    assert dict(context) == {"weight": 7, "carrier": "van"}
    assert context.changes == ()


def test_a_handler_can_see_that_its_step_no_longer_matters() -> None:
    context = a_context()
    assert not context.is_cancelled

    context.cancel()

    assert context.is_cancelled


@pytest.mark.parametrize(
    ("decorator", "kind"),
    [
        (task_handler, HandlerKind.TASK_HANDLER),
        (answer_provider, HandlerKind.ANSWER_PROVIDER),
        (due_date_provider, HandlerKind.DUE_DATE_PROVIDER),
    ],
)
def test_a_decorator_notes_the_kind_and_the_name(decorator: object, kind: HandlerKind) -> None:
    def weigh_parcel(context: object) -> None: ...

    named = decorator("weighParcel", timeout_s=2.5)(weigh_parcel)  # type: ignore[operator]

    assert named is weigh_parcel
    spec = find_spec(named)
    assert spec is not None
    assert (spec.capability.kind, spec.capability.name) == (kind, "weighParcel")
    assert spec.timeout_s == 2.5


@pytest.mark.parametrize("decorator", [task_handler, answer_provider, due_date_provider])
def test_a_decorator_without_a_name_takes_the_functions_own(decorator: object) -> None:
    @decorator  # type: ignore[operator]
    def weigh_parcel(context: object) -> None: ...

    spec = find_spec(weigh_parcel)
    assert spec is not None
    assert (spec.capability.name, spec.timeout_s) == ("weigh_parcel", None)


def test_what_has_no_decorator_is_no_handler() -> None:
    assert find_spec(a_context) is None
    assert find_spec(None) is None


@pytest.mark.parametrize("name", ["", " ", "a:b"])
def test_a_name_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a task_handler"):
        task_handler(name)


def test_only_a_function_can_be_a_handler() -> None:
    with pytest.raises(TypeError, match="only a function can be a task_handler"):
        task_handler("weigh")(5)


def test_a_process_error_carries_its_code() -> None:
    assert (ProcessError("EXPIRED").code, str(ProcessError("EXPIRED"))) == ("EXPIRED", "EXPIRED")
    assert str(ProcessError("EXPIRED", "the card has expired")) == "the card has expired"


def test_retry_later_says_for_how_long() -> None:
    assert str(RetryLater(timedelta(minutes=5))) == "retry in 0:05:00"
    assert str(RetryLater(timedelta(minutes=5), "busy")) == "busy"
    with pytest.raises(ValueError, match="not negative"):
        RetryLater(timedelta(seconds=-1))


def test_all_that_a_handler_raises_to_ask_for_something_is_a_signal() -> None:
    assert {ProcessError, RetryLater, Fatal} <= set(HandlerSignal.__subclasses__())


def test_what_a_handler_changes_in_place_changes_nothing_but_its_own_copy() -> None:
    stored: dict[str, Value] = {"items": [{"name": "pen"}], "other": ["left alone"]}
    context = ExecutionContext(VIEW, stored)

    items = context["items"]
    assert isinstance(items, list)
    items.append("ink")

    assert context["items"] is items
    assert context.variables["items"] is items
    assert stored["items"] == [{"name": "pen"}]
    assert context.changes == ()


def test_what_was_set_is_stored_as_it_was_set() -> None:
    context = a_context()

    context.set("items", ["pen"])
    items = context["items"]
    assert isinstance(items, list)
    items.append("ink")

    assert context.changes == (SetVariable("items", ["pen"]),)


def test_only_what_a_handler_looks_at_is_copied() -> None:
    class Counted(dict[str, Value]):
        looks = 0

        def items(self):  # type: ignore[no-untyped-def]
            Counted.looks += 1
            return super().items()

    context = ExecutionContext(VIEW, {"large": Counted(a=1), "small": Counted(b=2)})

    assert context["small"] == {"b": 2}
    context.set("other", 1)

    assert Counted.looks == 1
