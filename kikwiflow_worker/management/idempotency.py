"""A POST that carries an ``Idempotency-Key`` is carried out once; a repeat gets the answer that the first one got.

The key belongs to who sent it. Only what succeeded is remembered, for 24 hours: a request that was refused changed nothing,
so its repeat is judged anew. A repeat with another path, query or body is refused, and so is one that comes while the first
is still under way. If a server dies between the two, the repeat is carried out again after a minute; starting and
correlating are then recognised by the engine itself, and all other changes depend on a state that the first one ended.

``reserve`` is called where a caller is identified, so that no route can forget it; ``Remembering`` is the middleware that
takes note of the answer.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.identity import Identity
from kikwiflow_worker.management.problems import (
    RETRY_AFTER_S,
    BadRequestError,
    Code,
    RequestRefusedError,
)
from kikwiflow_worker.model.texts import tenant_scoped
from kikwiflow_worker.store.answers import (
    Answer,
    AnswerStore,
    InProgress,
    OfAnotherRequest,
    Reserved,
)

IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
LONGEST_KEY = 255
_HOLD = timedelta(seconds=60)
_KEPT_HEADERS = ("content-type", "etag", "location")


class KeyInUseError(RequestRefusedError):
    """The first request with this key is still under way."""

    code = Code.IDEMPOTENCY_KEY_IN_USE
    headers = {"Retry-After": str(RETRY_AFTER_S)}  # noqa: RUF012 - read only


class KeyReusedError(RequestRefusedError):
    """The key belongs to another request."""

    code = Code.IDEMPOTENCY_KEY_REUSED


class AnsweredBefore(Exception):  # noqa: N818 - no error: the answer is at hand
    """The request has been carried out before."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        super().__init__(answer.status)


@dataclass(frozen=True, slots=True)
class _Hold:
    """A key that the present request holds."""

    answers: AnswerStore
    key: str
    token: str


async def reserve(request: Request, identity: Identity, answers: AnswerStore) -> None:
    """Reserve the key of a POST for it, if it carries one.

    Raises:
        AnsweredBefore: It was carried out before.
        KeyInUseError: It is being carried out.
        KeyReusedError: The key was used for another request.
        BadRequestError: The key cannot be one.
    """
    key = request.headers.get(IDEMPOTENCY_KEY)
    if key is None or request.method != "POST":
        return
    if not 1 <= len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable():
        raise BadRequestError(
            f"the header {IDEMPOTENCY_KEY} is a text of 1 to {LONGEST_KEY} printable ASCII characters"
        )
    scoped = tenant_scoped(f"{identity.actor}\n{key}", identity.tenant_id)
    found = await answers.reserve(scoped, fingerprint=await _fingerprint(request), hold=_HOLD)
    match found:
        case Reserved(token):
            request.state.idempotency_hold = _Hold(answers, scoped, token)
        case Answer():
            raise AnsweredBefore(found)
        case InProgress():
            raise KeyInUseError(
                f"the first request with this {IDEMPOTENCY_KEY} is still under way; repeat it later"
            )
        case OfAnotherRequest():
            raise KeyReusedError(
                f"this {IDEMPOTENCY_KEY} belongs to another request; use a new one for each"
            )


async def _fingerprint(request: Request) -> str:
    digest = hashlib.sha256()
    for part in (request.scope["path"].encode("utf-8", "replace"), request.scope["query_string"]):
        digest.update(part + b"\n")
    digest.update(await request.body())
    return digest.hexdigest()


def add_replays(app: FastAPI) -> None:
    """Answer a request that was carried out before as it was answered then."""

    async def replay(_request: Request, error: Exception) -> Response:
        assert isinstance(error, AnsweredBefore)  # noqa: S101 - registered for it
        answer = error.answer
        return Response(answer.body, answer.status, headers={**answer.headers, REPLAYED: "true"})

    app.add_exception_handler(AnsweredBefore, replay)


@dataclass(frozen=True, slots=True)
class Remembering:
    """The middleware: notes the answer of a request that holds its key before it is sent."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        recorder = _Recorder(scope, send)
        try:
            await self.app(scope, receive, recorder)
        except BaseException:
            await recorder.release()
            raise


@dataclass(slots=True)
class _Recorder:
    """Holds a successful answer back until it is remembered."""

    scope: Scope
    send: Send
    start: Message | None = None
    body: list[bytes] = field(default_factory=list)

    @property
    def hold(self) -> _Hold | None:
        hold: _Hold | None = self.scope.get("state", {}).get("idempotency_hold")
        return hold

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and self.hold is not None:
            if 200 <= message["status"] < 300:
                self.start = message
                return
            await self.release()
        if self.start is None:
            await self.send(message)
            return
        self.body.append(message.get("body", b""))
        if not message.get("more_body", False):
            await self._remember(self.start, b"".join(self.body))

    async def _remember(self, start: Message, body: bytes) -> None:
        headers = Headers(raw=start["headers"])
        kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
        hold = self.hold
        # What was asked for is done, and says so itself to a repeat if this is not remembered.
        with suppress(StoreUnavailableError):
            if hold is not None:
                answer = Answer(status=start["status"], headers=kept, body=body)
                await hold.answers.record(hold.key, token=hold.token, answer=answer)
        MutableHeaders(scope=start)[REPLAYED] = "false"
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})

    async def release(self) -> None:
        """Let a repeat be carried out."""
        hold = self.hold
        # A reservation that cannot be released lapses by itself.
        with suppress(StoreUnavailableError):
            if hold is not None and self.start is None:
                await hold.answers.release(hold.key, token=hold.token)
