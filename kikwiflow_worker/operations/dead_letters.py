"""Looking after outbox events that the sink would not take."""

from dataclasses import dataclass

from kikwiflow_worker.errors import ConflictError, NotFoundError
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.relay import EventQuery, RelayCare, StoredEvent

MOST_AT_ONCE = 10_000
"""Dead letters that one request of a person or a program sends again: it must be answered in time."""

_PAGE = 500


@dataclass(frozen=True, slots=True)
class Resent:
    """What sending many dead letters again came to.

    Attributes:
        count: How many are tried again.
        is_all: False if there may be more: ask again.
    """

    count: int
    is_all: bool


async def get_event(care: RelayCare, event_id: str) -> StoredEvent:
    """Return an event of those that can be relayed.

    Raises:
        NotFoundError: There is none with this id, or it has expired.
    """
    event = await care.find_event(event_id)
    if event is None:
        raise NotFoundError(f"there is no outbox event {event_id}, or it has expired")
    return event


async def resend(care: RelayCare, event_id: str) -> StoredEvent:
    """Let a dead letter be tried again at once, with all its attempts; what it held back follows it.

    Raises:
        NotFoundError: There is no such event.
        ConflictError: It is no dead letter.
    """
    event = await get_event(care, event_id)
    if not await care.resend([event_id]):
        raise _no_dead_letter(event)
    return await get_event(care, event_id)


async def resend_all(
    care: RelayCare, *, instance_id: str | None = None, most: int | None = None
) -> Resent:
    """Let all dead letters be tried again, or those of one instance; each once, also if it dies again meanwhile.

    Args:
        most: Where to stop, to a page; None goes on to the end.
    """
    count = 0
    cursor: str | None = None
    while most is None or count < most:
        query = EventQuery(instance_id=instance_id)
        page = await care.list_events(query, limit=_PAGE, cursor=cursor)
        count += await care.resend([one.id for one in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return Resent(count, is_all=True)
    return Resent(count, is_all=False)


async def drop(care: RelayCare, event_id: str, *, by: str | None) -> StoredEvent:
    """Give up a dead letter: it is never sent, and what follows in its instance goes on.

    Raises:
        NotFoundError: There is no such event.
        ConflictError: It is no dead letter.
    """
    check_texts(event_id=event_id, by=by)
    event = await get_event(care, event_id)
    if not await care.drop(event_id, by=by):
        raise _no_dead_letter(event)
    return await get_event(care, event_id)


def _no_dead_letter(event: StoredEvent) -> ConflictError:
    return ConflictError(
        f"outbox event {event.id} is no dead letter: it is {event.status}, or somebody was faster; look at it again"
    )
