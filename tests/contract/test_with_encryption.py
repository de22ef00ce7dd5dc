"""Parts of the store's contract once more, with every value of a variable encrypted; the rest in the deep run."""

from tests.contract.test_child_writes import (
    test_a_child_s_end_releases_its_coordinator,
)
from tests.contract.test_group_arrivals import (
    test_messages_that_were_kept_for_waits_of_a_group_are_tried_at_once,
)
from tests.contract.test_group_commits import (
    test_an_end_sees_the_variables_of_its_group_and_takes_everything_with_it,
    test_changes_that_cannot_be_merged_are_written_one_after_another,
    test_variables_of_one_instance_are_merged_in_the_order_of_the_units,
)
from tests.contract.test_variables_in_store import (
    test_changes_of_different_variables_at_once_never_disturb_each_other,
    test_changes_of_one_variable_in_one_unit_are_applied_in_order,
    test_every_type_can_be_appended,
    test_every_type_comes_back_as_it_was_set,
    test_increments_and_appends_at_once_are_never_lost,
    test_what_became_of_another_type_meanwhile_stops_the_unit,
)
from tests.support.sealed import client, store

__all__ = [
    "client",
    "store",
    "test_a_child_s_end_releases_its_coordinator",
    "test_an_end_sees_the_variables_of_its_group_and_takes_everything_with_it",
    "test_changes_of_different_variables_at_once_never_disturb_each_other",
    "test_changes_of_one_variable_in_one_unit_are_applied_in_order",
    "test_changes_that_cannot_be_merged_are_written_one_after_another",
    "test_every_type_can_be_appended",
    "test_every_type_comes_back_as_it_was_set",
    "test_increments_and_appends_at_once_are_never_lost",
    "test_messages_that_were_kept_for_waits_of_a_group_are_tried_at_once",
    "test_variables_of_one_instance_are_merged_in_the_order_of_the_units",
    "test_what_became_of_another_type_meanwhile_stops_the_unit",
]
