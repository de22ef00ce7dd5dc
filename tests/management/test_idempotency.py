"""A POST that is sent twice with one key is carried out once."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from fastapi import Request

from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.management.identity import Identity, Role
from kikwiflow_worker.store.answers import (
    Answer,
    InProgress,
    OfAnotherRequest,
    Reserved,
)
from tests.support.management import PARCEL, Managed, manage
from tests.support.mongo import MongoServer

pytestmark = pytest.mark.mongo

START = {"processDefinitionKey": PARCEL, "businessKey": "P-1"}
HOLD = timedelta(seconds=60)
ANSWER = Answer(status=201, headers={"content-type": "application/json"}, body=b"{}")


async def start(managed: Managed, key: str, **fields: Any) -> Any:
    return await managed.api.post(
        "/process-instances", json={**START, **fields}, headers={"Idempotency-Key": key}
    )


async def test_a_repeat_gets_the_answer_that_the_first_one_got(managed: Managed) -> None:
    await managed.deploy()

    first = await start(managed, "k")
    await managed.kikwiflow.set_variables(first.json()["id"], {"later": 1})
    again = await start(managed, "k")

    assert (first.status_code, first.headers["Idempotency-Replayed"]) == (201, "false")
    assert (again.status_code, again.headers["Idempotency-Replayed"]) == (201, "true")
    assert again.content == first.content
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    assert managed.data.process_instances.count_documents({}) == 1


async def test_every_kind_of_post_is_repeated(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    task = await managed.task_of(waiting)
    path = f"/external-tasks/{task.id}/complete"

    first = await managed.api.post(path, headers={"Idempotency-Key": "k"})
    again = await managed.api.post(path, headers={"Idempotency-Key": "k"})
    without = await managed.api.post(path)

    assert (first.status_code, again.status_code, without.status_code) == (202, 202, 409)
    assert again.content == first.content


async def test_an_answer_without_a_body_is_repeated(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()
    path = f"/process-instances/{waiting.id}/cancel"

    first = await managed.api.post(path, headers={"Idempotency-Key": "k"})
    again = await managed.api.post(path, headers={"Idempotency-Key": "k"})

    assert (first.status_code, again.status_code) == (204, 204)
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("other", [{"businessKey": "P-2"}, {"priority": 9}])
async def test_a_key_belongs_to_one_request(managed: Managed, other: dict[str, Any]) -> None:
    await managed.deploy()
    await start(managed, "k")

    response = await start(managed, "k", **other)

    assert (response.status_code, response.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")


async def test_a_refused_request_is_judged_anew(managed: Managed) -> None:
    refused = await start(managed, "k")
    await managed.deploy()

    allowed = await start(managed, "k")

    assert (refused.status_code, allowed.status_code) == (404, 201)


async def test_requests_at_once_are_carried_out_once(managed: Managed) -> None:
    await managed.deploy()

    answers = await asyncio.gather(*(start(managed, "k") for _ in range(8)))

    statuses = sorted(answer.status_code for answer in answers)
    assert statuses[0] == 201
    assert set(statuses) <= {201, 409}
    assert managed.data.process_instances.count_documents({}) == 1
    for answer in answers:
        if answer.status_code == 409:
            assert answer.json()["code"] == "IDEMPOTENCY_KEY_IN_USE"
            assert answer.headers["Retry-After"] == "2"


async def test_a_start_or_message_whose_answer_was_lost_is_not_carried_out_again(
    managed: Managed,
) -> None:
    await managed.deploy()
    message = {"correlationKey": "nobody", "keepForSeconds": 60}
    headers = {"Idempotency-Key": "m"}

    first = await start(managed, "k")
    kept = await managed.api.post("/events/correlate", json=message, headers=headers)
    managed.data.api_answers.delete_many({})  # the server died before it could note them
    again = await start(managed, "k")
    known = await managed.api.post("/events/correlate", json=message, headers=headers)

    assert again.json()["id"] == first.json()["id"]
    assert again.headers["Idempotency-Replayed"] == "false"
    assert (kept.json()["outcome"], known.json()["outcome"]) == ("kept", "known")


class ByHeader:
    """Takes everybody's word for who they are."""

    async def identify(self, request: Request) -> Identity:
        roles = frozenset({Role(request.headers.get("X-Role", "admin"))})
        return Identity(actor=request.headers["X-Actor"], roles=roles)


async def test_a_key_belongs_to_who_sent_it(mongo_server: MongoServer, data: Any) -> None:
    async with manage(mongo_server.uri, data, authenticator=ByHeader()) as managed:
        await managed.deploy()

        async def cancelled(actor: str, role: str = "admin") -> int:
            headers = {"Idempotency-Key": "k", "X-Actor": actor, "X-Role": role}
            path = f"/process-instances/{waiting.id}/cancel"
            return (await managed.api.post(path, headers=headers)).status_code

        waiting = await managed.a_waiting_parcel()
        assert await cancelled("ann") == 204
        assert await cancelled("bob") == 409
        # Who may not do it any more gets no answer from before either.
        assert await cancelled("ann", role="viewer") == 403


NO_KEYS = ["", "x" * 256, "a\tb", "ä"]


async def test_what_can_be_no_key_is_refused(managed: Managed) -> None:
    await managed.deploy()

    for key in NO_KEYS:
        response = await managed.api.post(
            "/process-instances", json=START, headers={b"Idempotency-Key": key.encode("latin-1")}
        )
        assert (response.status_code, response.json()["code"]) == (400, "BAD_REQUEST"), key


async def test_an_answer_that_cannot_be_remembered_is_given_all_the_same(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await managed.deploy()

    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailableError("away")

    monkeypatch.setattr(managed.app.state.backend.answers, "record", fail)
    first = await start(managed, "k")

    assert first.status_code == 201


# --- the store


async def test_a_reservation_that_lapsed_is_taken_over_once(managed: Managed) -> None:
    answers = managed.store.answers
    first = await answers.reserve("k", fingerprint="f", hold=-HOLD)
    second = await answers.reserve("k", fingerprint="f", hold=HOLD)
    third = await answers.reserve("k", fingerprint="f", hold=HOLD)
    other = await answers.reserve("k", fingerprint="g", hold=HOLD)

    assert isinstance(first, Reserved)
    assert isinstance(second, Reserved)
    assert (third, other) == (InProgress(), OfAnotherRequest())

    await answers.record("k", token=first.token, answer=ANSWER)
    assert await answers.reserve("k", fingerprint="f", hold=HOLD) == InProgress()
    await answers.record("k", token=second.token, answer=ANSWER)
    assert await answers.reserve("k", fingerprint="f", hold=HOLD) == ANSWER
    await answers.release("k", token=second.token)
    assert await answers.reserve("k", fingerprint="f", hold=HOLD) == ANSWER


async def test_answers_are_forgotten_by_the_database(managed: Managed) -> None:
    await managed.store.answers.reserve("k", fingerprint="f", hold=HOLD)

    document = managed.data.api_answers.find_one({"_id": "k"})
    indexes = managed.data.api_answers.index_information()

    assert document is not None
    assert document["expiresAt"] - document["heldUntil"] == timedelta(hours=24) - HOLD
    assert indexes["expiry"]["expireAfterSeconds"] == 0
