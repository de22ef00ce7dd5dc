"""The ids that follow from one another: those of RFC 4122, whatever an id before them looks like."""

from uuid import NAMESPACE_OID, UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from kikwiflow_worker.engine.visits import derived_id


@given(before=st.uuids(), name=st.text())
def test_a_derived_id_is_the_uuid_of_its_name_in_the_namespace_of_what_was_before(
    before: UUID, name: str
) -> None:
    # A text with half a character has no bytes; no definition, variable or key may hold one.
    named = name.encode("utf-8", "ignore").decode()

    assert derived_id(str(before), named) == str(uuid5(before, named))


@given(before=st.text(alphabet=st.characters(exclude_categories=["Cs"])), name=st.just("A"))
def test_what_is_no_uuid_stands_for_one(before: str, name: str) -> None:
    try:
        namespace = UUID(before)
    except ValueError:
        namespace = uuid5(NAMESPACE_OID, before)

    assert derived_id(before, name) == str(uuid5(namespace, name))


@given(before=st.uuids())
def test_every_spelling_of_a_uuid_is_the_same_one(before: UUID) -> None:
    spellings = {str(before).upper(), before.hex, before.urn, f"{{{before}}}"}

    assert {derived_id(spelling, "A") for spelling in spellings} == {derived_id(str(before), "A")}


def test_stored_ids_stay_what_they_are() -> None:
    first = derived_id("order-7", "A")

    assert first == "4cb671ac-6a37-51e8-9b3f-9f3d2958fc95"
    assert derived_id(first, "A") == "20c612ed-389d-5b26-a510-6846a50b43e1"
