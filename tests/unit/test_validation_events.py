"""Boundary events, correlation, recurring timers and call activities."""

import pytest

from tests.support.definitions import Json, a_node, a_start, an_end
from tests.support.findings import (
    CATCH,
    DEADLINE,
    HANDLER,
    REMINDER,
    a_host,
    an_event,
    errors_around,
    problems_of,
    warnings_around,
)

# --- recurring timers


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        (None, ""),
        ({}, ""),
        ({"type": "RATE_DURATION"}, ".expression"),
        ({"type": "RATE_DURATION", "expression": "PT0S"}, ".expression"),
        ({"type": "RATE_DURATION", "expression": "0 9 * * *"}, ".expression"),
        ({"type": "CRON", "expression": "at nine"}, ".expression"),
        ({"type": "FIXED_DATES"}, ".fixedDates"),
        ({"type": "FIXED_DATES", "fixedDates": ["2026-12-31T00:00:00Z", "PT1H"]}, ".fixedDates[1]"),
    ],
)
def test_a_recurring_timer_without_a_usable_schedule_is_an_error(
    policy: Json | None, path: str
) -> None:
    event = an_event(REMINDER, schedulePolicy=policy)

    errors = errors_around(a_host("EXTERNAL_TASK", "EVENT"), event)

    assert list(errors) == [f"flowNodes.EVENT.schedulePolicy{path}"]


@pytest.mark.parametrize(
    "policy",
    [
        {"type": "CRON", "expression": "0 9 * * MON"},
        {"type": "CRON", "expression": "PT1H"},
        {"type": "FIXED_DATES", "fixedDates": ["2026-12-31T00:00:00Z"]},
    ],
)
def test_a_recurring_timer_with_a_schedule_is_fine(policy: Json) -> None:
    event = an_event(REMINDER, schedulePolicy=policy)

    assert warnings_around(a_host("EXTERNAL_TASK", "EVENT"), event) == {}


def test_a_recurring_timer_that_never_fires_is_a_warning() -> None:
    policy = {"type": "RATE_DURATION", "expression": "PT1H", "maxOccurrences": 0}
    event = an_event(REMINDER, schedulePolicy=policy)

    warnings = warnings_around(a_host("EXTERNAL_TASK", "EVENT"), event)

    assert warnings == {"flowNodes.EVENT.schedulePolicy.maxOccurrences": "the timer never fires"}


@pytest.mark.parametrize(
    "properties",
    [
        {"kikwiflow.timeZone": "Mars/Olympus"},
        {"kikwiflow.missedFires": "sometimes"},
        {"kikwiflow.maxCatchUp": "0"},
    ],
)
def test_a_property_of_a_schedule_that_cannot_be_read_is_an_error(properties: Json) -> None:
    event = an_event(REMINDER, extensionProperties=properties)

    errors = errors_around(a_host("EXTERNAL_TASK", "EVENT"), event)

    (path,) = errors
    assert path.startswith("flowNodes.EVENT.extensionProperties")


def test_a_misspelt_property_of_the_engine_is_a_warning_with_a_suggestion() -> None:
    event = an_event(REMINDER, extensionProperties={"kikwiflow.timezone": "UTC", "colour": "red"})

    (problem,) = problems_of(a_start("HOST"), a_host("EXTERNAL_TASK", "EVENT"), event, an_end())

    assert not problem.is_error
    assert "kikwiflow.timezone" in problem.message
    assert problem.hint == "did you mean 'kikwiflow.timeZone'?"


def test_a_property_that_the_engine_does_not_read_there_is_a_warning() -> None:
    host = a_host("EXTERNAL_TASK") | {"extensionProperties": {"kikwiflow.timeZone": "UTC"}}

    (message,) = warnings_around(host).values()

    assert message == "'kikwiflow.timeZone' has no effect on EXTERNAL_TASK"


@pytest.mark.parametrize("value", ["soon", "PT0S", "-PT1H", "2030-01-01T00:00:00Z"])
def test_a_thrower_keeps_its_message_for_a_length_of_time(value: str) -> None:
    thrower = a_node(
        "X", "EVENT_THROWER", "END", providerType="STATIC", staticKey="paid",
        extensionProperties={"kikwiflow.keepFor": value},
    )  # fmt: skip

    (path,) = errors_around(thrower)

    assert "kikwiflow.keepFor" in path


@pytest.mark.parametrize("value", ["total", "total, decision=approval", " a = b ,c"])
def test_outputs_of_a_call_activity_are_names(value: str) -> None:
    call = a_node(
        "X", "CALL_ACTIVITY_COORDINATOR", "END", calledElement="child",
        extensionProperties={"kikwiflow.outputs": value},
    )  # fmt: skip

    assert warnings_around(call) == {}


@pytest.mark.parametrize("value", ["", "total,", "=approval", "total=", "a=b=c"])
def test_outputs_that_name_nothing_are_an_error(value: str) -> None:
    call = a_node(
        "X", "CALL_ACTIVITY_COORDINATOR", "END", calledElement="child",
        extensionProperties={"kikwiflow.outputs": value},
    )  # fmt: skip

    (path,) = errors_around(call)

    assert "kikwiflow.outputs" in path


# --- boundary events


ALLOWED = {
    "EXECUTABLE_TASK": {REMINDER, HANDLER},
    "EXTERNAL_TASK": {DEADLINE, REMINDER, CATCH, HANDLER},
    "TIMER_TASK": {DEADLINE, REMINDER, CATCH},
    "EVENT_CATCHER": {DEADLINE, REMINDER},
    "CALL_ACTIVITY_COORDINATOR": {DEADLINE, REMINDER},
}


@pytest.mark.parametrize("host_type", ALLOWED)
@pytest.mark.parametrize("event_type", [DEADLINE, REMINDER, HANDLER, CATCH])
def test_only_some_boundary_events_fit_a_host(host_type: str, event_type: str) -> None:
    errors = errors_around(a_host(host_type, "EVENT"), an_event(event_type))

    assert ("flowNodes.HOST.boundaryEventIds[0]" not in errors) == (
        event_type in ALLOWED[host_type]
    )


@pytest.mark.parametrize("host_type", ALLOWED)
def test_an_unknown_boundary_event_is_an_error_on_every_host(host_type: str) -> None:
    errors = errors_around(a_host(host_type, "NOWHERE"))

    assert errors == {"flowNodes.HOST.boundaryEventIds[0]": "there is no node 'NOWHERE'"}


def test_an_ordinary_node_is_no_boundary_event() -> None:
    errors = errors_around(a_host("EXTERNAL_TASK", "END"))

    assert "cannot be attached" in errors["flowNodes.HOST.boundaryEventIds[0]"]


def test_a_boundary_event_listed_twice_is_an_error() -> None:
    errors = errors_around(a_host("EXTERNAL_TASK", "EVENT", "EVENT"), an_event(DEADLINE))

    assert errors == {"flowNodes.HOST.boundaryEventIds[1]": "'EVENT' is listed twice"}


def test_an_error_handler_on_an_external_task_is_a_warning() -> None:
    warnings = warnings_around(a_host("EXTERNAL_TASK", "EVENT"), an_event(HANDLER))

    assert "can never fire" in warnings["flowNodes.HOST.boundaryEventIds[0]"]


@pytest.mark.parametrize("attached_to", [None, "NOWHERE", "START"])
def test_a_catch_event_on_no_fitting_host_is_an_error(attached_to: str | None) -> None:
    event = an_event(CATCH, attachedToRef=attached_to)

    errors = errors_around(a_host("EXTERNAL_TASK", "EVENT"), event)

    assert list(errors) == ["flowNodes.EVENT.attachedToRef"]


def test_a_boundary_event_that_no_node_lists_is_a_warning() -> None:
    warnings = warnings_around(a_host("EXTERNAL_TASK"), an_event(DEADLINE, attachedToRef="HOST"))

    assert warnings == {"flowNodes.EVENT": "no node lists this boundary event, so it never fires"}


def test_a_boundary_event_that_names_another_host_is_a_warning() -> None:
    warnings = warnings_around(
        a_host("EXTERNAL_TASK", "EVENT"), an_event(DEADLINE, attachedToRef="START")
    )

    assert list(warnings) == ["flowNodes.EVENT.attachedToRef"]


def test_a_catch_all_before_a_code_is_a_warning() -> None:
    warnings = warnings_around(
        a_host("EXECUTABLE_TASK", "ANY", "LOST"),
        an_event(HANDLER, "ANY"),
        an_event(HANDLER, "LOST", errorCode="LOST"),
    )

    assert "'LOST' never fires, 'ANY' before it" in warnings["flowNodes.HOST.boundaryEventIds[1]"]


def test_a_catch_all_after_a_code_is_fine() -> None:
    warnings = warnings_around(
        a_host("EXECUTABLE_TASK", "LOST", "ANY"),
        an_event(HANDLER, "ANY"),
        an_event(HANDLER, "LOST", errorCode="LOST"),
    )

    assert warnings == {}


def test_a_code_that_is_handled_twice_is_a_warning() -> None:
    warnings = warnings_around(
        a_host("EXECUTABLE_TASK", "A", "B"),
        an_event(HANDLER, "A", errorCode="LOST"),
        an_event(HANDLER, "B", errorCode="LOST"),
    )

    assert list(warnings) == ["flowNodes.HOST.boundaryEventIds[1]"]


def test_an_empty_error_code_is_a_warning() -> None:
    warnings = warnings_around(a_host("EXECUTABLE_TASK", "EVENT"), an_event(HANDLER, errorCode=""))

    assert list(warnings) == ["flowNodes.EVENT.errorCode"]


# --- events and call activities


def a_catcher(**fields: object) -> Json:
    return a_node("X", "EVENT_CATCHER", "END", **{"catchType": "STANDALONE", **fields})


SEGMENTS: Json = {"keySegments": [{"type": "VARIABLE", "value": "order"}]}


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "providerType"),
        ({"providerType": "STATIC"}, "staticKey"),
        ({"providerType": "VARIABLE", "providerVariable": ""}, "providerVariable"),
        ({"providerType": "BEAN"}, "providerBean"),
        ({"providerType": "TEMPLATE"}, "correlationTemplates"),
        ({"providerType": "TEMPLATE", "correlationTemplates": [{}]}, "correlationTemplates[0].keySegments"),
        ({"providerType": "TEMPLATE", "correlationTemplates": [SEGMENTS, SEGMENTS]}, "correlationTemplates"),
        (
            {"providerType": "TEMPLATE", "correlationTemplates": [{"keySegments": [{"type": "VARIABLE"}]}]},
            "correlationTemplates[0].keySegments[0].value",
        ),
        ({"catchType": "GROUP", "providerType": "STATIC", "staticKey": "k"}, "providerType"),
    ],
)  # fmt: skip
def test_an_event_without_a_usable_key_is_an_error(fields: Json, path: str) -> None:
    assert list(errors_around(a_catcher(**fields))) == [f"flowNodes.X.{path}"]


def test_a_group_may_have_several_templates() -> None:
    catcher = a_catcher(
        catchType="GROUP", providerType="TEMPLATE", correlationTemplates=[SEGMENTS, SEGMENTS]
    )

    assert warnings_around(catcher) == {}


def test_a_catcher_without_a_catch_type_is_a_warning() -> None:
    catcher = a_catcher(catchType=None, providerType="STATIC", staticKey="k")

    assert list(warnings_around(catcher)) == ["flowNodes.X.catchType"]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({}, "calledElement"),
        ({"calledElement": " "}, "calledElement"),
        ({"calledElement": "child", "elementVariable": "parcel"}, "elementVariable"),
    ],
)
def test_an_incomplete_call_activity_is_an_error(fields: Json, path: str) -> None:
    call = a_node("X", "CALL_ACTIVITY_COORDINATOR", "END", **fields)

    assert list(errors_around(call)) == [f"flowNodes.X.{path}"]
