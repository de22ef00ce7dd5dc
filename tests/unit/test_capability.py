"""What a step needs, and what a process has."""

from kikwiflow_worker.model.capability import (
    NO_CAPABILITIES,
    Capabilities,
    Capability,
    HandlerKind,
)

WEIGH = Capability(HandlerKind.TASK_HANDLER, "weigh")
ROUTE = Capability(HandlerKind.ANSWER_PROVIDER, "route")


def test_a_task_handler_is_stored_by_its_name_and_a_provider_with_its_kind() -> None:
    assert (WEIGH.stored, ROUTE.stored) == ("weigh", "answer_provider:route")


def test_a_process_has_exactly_what_it_was_given() -> None:
    known = Capabilities([WEIGH, ROUTE])

    assert WEIGH in known
    assert Capability(HandlerKind.DUE_DATE_PROVIDER, "route") not in known
    assert known.stored == {"weigh", "answer_provider:route"}
    assert WEIGH not in NO_CAPABILITIES


def test_a_capability_reads_as_words() -> None:
    assert str(ROUTE) == "answer provider 'route'"
