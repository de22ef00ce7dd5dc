"""Where values of variables, and texts that may quote them, are stored: what is sealed, found in the documents themselves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kikwiflow_worker.store.mongo.answers import BODY
from kikwiflow_worker.store.mongo.codec import LOOP_FIELDS
from kikwiflow_worker.store.mongo.driver import Document
from kikwiflow_worker.store.mongo.relay_documents import owner_of_slice
from kikwiflow_worker.store.mongo.value_codec import payload_values, unescape_key


@dataclass(frozen=True, slots=True)
class Place:
    """One stored value or text.

    Attributes:
        document_id: The ``_id`` of its document.
        path: Of the value in its document.
        owner: What it is bound to, with ``name``.
        within: The path of what must still be ``as_read`` for the value to be replaced.
    """

    document_id: Any
    path: str
    owner: str
    name: str
    stored: Any
    within: str
    as_read: Any


def _of_variables(document: Document) -> Iterator[Place]:
    """Yield the variables of an instance or a message; an entry that is removed meanwhile must not come back in part."""
    for key, entry in document.get("variables", {}).items():
        path = f"variables.{key}"
        name, stored = unescape_key(key), entry.get("value")
        own_id = document["_id"]
        yield Place(own_id, f"{path}.value", own_id, name, stored, path, entry)


def _of_task(document: Document) -> Iterator[Place]:
    return _fields(document, (*LOOP_FIELDS, "error"))


def _of_incident(document: Document) -> Iterator[Place]:
    return _fields(document, ("message", "stackTrace"))


def _of_event(document: Document) -> Iterator[Place]:
    for path, stored in payload_values(document["payload"]):
        yield _whole(document, f"payload.{path}", path, stored)
    yield from _fields(document, ("lastError",))


def _of_slice(document: Document) -> Iterator[Place]:
    for place in _fields(document, ("lastError",)):
        yield replace(place, owner=owner_of_slice(document["_id"]))


def _of_answer(document: Document) -> Iterator[Place]:
    if document.get(BODY):
        yield _whole(document, BODY, BODY, document[BODY])


def _fields(document: Document, names: Sequence[str]) -> Iterator[Place]:
    for name in names:
        if document.get(name) is not None:
            yield _whole(document, name, name, document[name])


def _whole(document: Document, path: str, name: str, stored: Any) -> Place:
    return Place(document["_id"], path, document["_id"], name, stored, path, stored)


PLACES: Mapping[str, Callable[[Document], Iterator[Place]]] = {
    "instances": _of_variables,
    "tasks": _of_task,
    "incidents": _of_incident,
    "messages": _of_variables,
    "history": _of_variables,
    "outbox_events": _of_event,
    "outbox_slices": _of_slice,
    "answers": _of_answer,
}
"""The places in documents of each collection, by its field in ``Collections``."""
