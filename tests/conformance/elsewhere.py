"""Cases of the reference that tests elsewhere in this repository show: sections 7.5 and 7.6."""

from dataclasses import dataclass

from tests.conformance.row import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """One case.

    Attributes:
        test: The file below ``tests`` and the test in it; empty if none can be.
    """

    id: str
    case: str
    reference: str
    test: str = ""
    differs: Difference | None = None


LOST = Difference(
    "`ClaimLostError`", "errors are our own types; a lost race is an ordinary outcome"
)

CASES = (
    Elsewhere(
        id="7.5-1", case="two versions of one key", reference="the second is the latest, the first is found, two are listed",
        test="contract/test_definitions_in_store.py::test_a_version_is_found_by_its_number",
    ),
    Elsewhere(
        id="7.5-2", case="an instance with one PENDING row", reference="the stored count of active nodes is 1",
        differs=Difference(
            "no such count is stored; rows are listed by instance",
            "it was a copy of what the rows say, and each commit of a branch would contend for it",
        ),
    ),
    Elsewhere(
        id="7.5-3", case="a change of an unknown instance", reference="OptimisticLockingFailureException", differs=LOST,
        test="contract/test_commits.py::test_a_change_of_an_instance_that_is_gone_stops_the_unit",
    ),
    Elsewhere(
        id="7.5-4", case="a join of two branches, which arrive one after the other", reference="AWAITING_BRANCHES with one, then PENDING with none",
        test="contract/test_branches.py::test_the_last_branch_makes_the_join_due",
    ),
    Elsewhere(
        id="7.5-5", case="claiming a due row, and one whose lock has lapsed", reference="both are LOCKED by the caller",
        test="contract/test_claims.py::test_a_lapsed_lock_is_taken_over_and_counted_as_a_crash_and_not_as_an_attempt",
    ),
    Elsewhere(
        id="7.5-6", case="listing instances by tenant and status, in pages", reference="exactly those",
        test="contract/test_paging.py::test_instances_are_found_by_what_they_are",
    ),
    Elsewhere(
        id="7.5-7", case="listing external tasks by assignee", reference="exactly those",
        test="contract/test_paging.py::test_external_tasks_are_found_by_whose_they_are",
    ),
    Elsewhere(
        id="7.5-8", case="deleting a group", reference="its keys go with it, nothing else",
        test="contract/test_boundary_writes.py::test_the_keys_of_a_group_go_with_the_group",
    ),
    Elsewhere(
        id="7.5-9", case="two keys of a group that waits for all", reference="the first leaves one pending, the second is the last",
        test="contract/test_group_writes.py::test_a_matched_key_is_taken_from_its_group_and_waits_no_more",
    ),
    Elsewhere(
        id="7.5-10", case="two keys of a group that waits for any", reference="the first decides, the second counts for nothing",
        test="contract/test_group_writes.py::test_two_keys_of_an_any_group_at_once_complete_it_once",
    ),
    Elsewhere(
        id="7.5-11", case="a key of a group that is gone", reference="false", differs=LOST,
        test="contract/test_group_writes.py::test_a_key_of_a_group_that_is_gone_is_not_matched",
    ),
    Elsewhere(
        id="7.5-12", case="finding who waits for a key", reference="in its tenant only, never one that was correlated",
        test="contract/test_waiting.py::test_a_key_that_was_matched_waits_no_more",
    ),
    Elsewhere(
        id="7.5-13", case="counting external tasks by definition", reference="without correlated keys",
        differs=Difference("there is no such count", "nothing uses it"),
    ),
    Elsewhere(
        id="7.5-14", case="a host ends", reference="its timer and its message go with it, nothing else",
        test="contract/test_boundary_writes.py::test_what_hangs_on_a_host_goes_with_it",
    ),
    Elsewhere(
        id="7.5-15", case="a host that is gone ends", reference="OptimisticLockingFailureException, nothing of the commit is written", differs=LOST,
        test="contract/test_boundary_writes.py::test_a_host_that_is_gone_stops_the_whole_unit",
    ),
    Elsewhere(
        id="7.5-16", case="the same host ends twice", reference="OptimisticLockingFailureException", differs=LOST,
        test="contract/test_boundary_writes.py::test_of_a_host_s_completion_and_its_event_at_once_one_counts",
    ),
    Elsewhere(
        id="7.6-1", case="an instance that was put into the store is looked for", reference="it is active",
        test="contract/test_commits.py::test_an_instance_reads_as_it_was_written",
    ),
    Elsewhere(
        id="7.6-2", case="an instance is deleted", reference="it is both not running and completed: the two cannot be told apart",
        test="contract/test_cancellation.py::test_a_cancelled_instance_leaves_its_history_only",
        differs=Difference("a cancelled instance is in the history as CANCELLED", "the history says how an instance ended"),
    ),
    Elsewhere(
        id="7.6-3", case="one external task is looked for at its node and at another", reference="true for its own, false for the other",
        test="unit/test_harness.py::test_completing_what_nobody_waits_for_says_where_instances_wait",
    ),
)  # fmt: skip
