"""Where values of variables are stored: the places that are sealed, found in the documents themselves."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kikwiflow_worker.store.mongo.answers import BODY
from kikwiflow_worker.store.mongo.codec import LOOP_FIELDS
from kikwiflow_worker.store.mongo.driver import Document
from kikwiflow_worker.store.mongo.value_codec import payload_values, unescape_key


@dataclass(frozen=True, slots=True)
class Place:
    """One stored value.

    Attributes:
        path: Of the value in its document.
        owner: What it is bound to, with ``name``.
        within: The path of what must still be ``as_read`` for the value to be replaced.
    """

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
        yield Place(f"{path}.value", document["_id"], name, stored, path, entry)


def _of_loop(document: Document) -> Iterator[Place]:
    for field in LOOP_FIELDS if "loopIndex" in document else ():
        yield _whole(document, field, field, document[field])


def _of_event(document: Document) -> Iterator[Place]:
    for path, stored in payload_values(document["payload"]):
        yield _whole(document, f"payload.{path}", path, stored)


def _of_answer(document: Document) -> Iterator[Place]:
    if document.get(BODY):
        yield _whole(document, BODY, BODY, document[BODY])


def _whole(document: Document, path: str, name: str, stored: Any) -> Place:
    return Place(path, document["_id"], name, stored, path, stored)


PLACES: Mapping[str, Callable[[Document], Iterator[Place]]] = {
    "instances": _of_variables,
    "tasks": _of_loop,
    "messages": _of_variables,
    "history": _of_variables,
    "outbox_events": _of_event,
    "answers": _of_answer,
}
"""The places in documents of each collection, by its field in ``Collections``."""
