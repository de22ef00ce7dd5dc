"""The port that remembers answers, so that a request which is sent twice is carried out once and answered the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a request was answered with.

    Attributes:
        headers: Those that belong to the answer itself, by lower-case name.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Reserved:
    """The request is to be carried out now, by whoever holds ``token``."""

    token: str


@dataclass(frozen=True, slots=True)
class InProgress:
    """The same request is being carried out."""


@dataclass(frozen=True, slots=True)
class OfAnotherRequest:
    """The key was used for a request of another content."""


Reservation: TypeAlias = Reserved | InProgress | OfAnotherRequest | Answer
"""What a key is worth to a request: the right to be carried out, a refusal, or the answer that it got before."""


class AnswerStore(Protocol):
    """Answers by key; they are forgotten after ``REMEMBERED``."""

    async def reserve(self, key: str, *, fingerprint: str, hold: timedelta) -> Reservation:
        """Reserve ``key`` for a request with this fingerprint, unless it is reserved or answered.

        A reservation lapses after ``hold``, since its holder may have died: the next request takes it over.
        """
        ...

    async def record(self, key: str, *, token: str, answer: Answer) -> None:
        """Remember the answer; nothing happens if the reservation has been taken over."""
        ...

    async def release(self, key: str, *, token: str) -> None:
        """Let the request be carried out anew; nothing happens if the reservation has been taken over."""
        ...


REMEMBERED = timedelta(hours=24)
"""How long an answer is known."""
