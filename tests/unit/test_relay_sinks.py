"""The sinks of the relay: what goes out, what counts as taken, and how a sink is found."""

import asyncio
import base64
import hmac
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiokafka.errors import KafkaConnectionError, MessageSizeTooLargeError
from bson.binary import Binary
from bson.timestamp import Timestamp

from kikwiflow_worker.errors import ConfigurationError, EncryptionError
from kikwiflow_worker.relay import sinks
from kikwiflow_worker.relay.kafka import KafkaSink, connection
from kikwiflow_worker.relay.message import Message, message_of
from kikwiflow_worker.relay.sinks import RefusedError, load_sink
from kikwiflow_worker.relay.stdout import StdoutSink
from kikwiflow_worker.relay.webhook import WebhookSink, open_sink, read_secrets, sign
from kikwiflow_worker.store.mongo.relay_documents import decode_event
from kikwiflow_worker.store.mongo.sealing import SUBTYPE
from kikwiflow_worker.store.relay import RelayStatus, StoredEvent

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)
SECRET = b"s" * 24
MESSAGE = Message(id="E-1", type="TIMER_FIRED", instance_id="I-1", tenant_id=None, body=b'{"a":1}')


class FixedClock:
    """A clock that stands still."""

    def now(self) -> datetime:
        return AT

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nothing sleeps here")


def an_event(**fields: Any) -> StoredEvent:
    given: dict[str, Any] = {
        "id": "E-1",
        "type": "INCIDENT_CREATED",
        "timestamp": AT,
        "instance_id": "I-1",
        "definition_id": "D-1",
        "payload": {"tenantId": "acme", "actorId": "ana", "total": Decimal("1.10")},
        "sequence": "0000000001.0000000002",
        "status": RelayStatus.PENDING,
    }
    return StoredEvent(**(given | fields))


def test_a_message_holds_the_event_as_json() -> None:
    message = message_of(an_event())

    assert (message.id, message.instance_id, message.tenant_id) == ("E-1", "I-1", "acme")
    assert json.loads(message.body) == {
        "id": "E-1",
        "eventType": "INCIDENT_CREATED",
        "processInstanceId": "I-1",
        "processDefinitionId": "D-1",
        "tenantId": "acme",
        "actorId": "ana",
        "timestamp": "2026-05-01T12:00:00.000Z",
        "sequence": "0000000001.0000000002",
        "payload": {"tenantId": "acme", "actorId": "ana", "total": "1.10"},
    }


def test_an_event_that_cannot_be_decrypted_is_not_sent_empty() -> None:
    with pytest.raises(EncryptionError, match="no key"):
        message_of(an_event(payload={}, unreadable="no key K-2"))


async def test_standard_output_gets_one_document_in_each_line() -> None:
    stream = io.BytesIO()
    sink = StdoutSink(stream)
    await sink.deliver(MESSAGE)
    await sink.deliver(MESSAGE)

    assert stream.getvalue() == b'{"a":1}\n{"a":1}\n'


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the Standard Webhooks specification, signed by its libraries too."""
    secret = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'

    signature = sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body, [secret])

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


async def posted(answer: int, *, secrets: tuple[bytes, ...] = (SECRET,)) -> list[httpx.Request]:
    requests: list[httpx.Request] = []

    def receive(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(answer)

    transport = httpx.MockTransport(receive)
    sink = WebhookSink("https://r.example/e", secrets, clock=FixedClock(), transport=transport)
    await sink.open()
    try:
        await sink.deliver(MESSAGE)
    finally:
        await sink.close()
    return requests


async def test_a_webhook_is_signed_with_each_secret_and_its_time() -> None:
    (request,) = await posted(204, secrets=(SECRET, b"t" * 24))

    assert request.content == MESSAGE.body
    assert request.headers["webhook-id"] == "E-1"
    assert request.headers["webhook-timestamp"] == str(int(AT.timestamp()))
    assert request.headers["kikwiflow-event-type"] == "TIMER_FIRED"
    signed = f"E-1.{int(AT.timestamp())}.".encode() + MESSAGE.body
    expected = [
        "v1," + base64.b64encode(hmac.new(secret, signed, sha256).digest()).decode()
        for secret in (SECRET, b"t" * 24)
    ]
    assert request.headers["webhook-signature"].split(" ") == expected


@pytest.mark.parametrize("answer", [400, 410, 413, 415, 422])
async def test_a_receiver_can_refuse_an_event_for_good(answer: int) -> None:
    with pytest.raises(RefusedError, match=str(answer)):
        await posted(answer)


@pytest.mark.parametrize("answer", [301, 401, 403, 404, 408, 429, 500, 502, 503])
async def test_any_other_answer_means_later(answer: int) -> None:
    with pytest.raises(OSError, match=str(answer)):
        await posted(answer)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "secret_file is missing; url is missing"),
        ({"url": "ftp://x"}, "secret_file is missing"),
        ({"url": "ftp://x", "secret_file": "@"}, "url is not http"),
        ({"url": "https://u:p@x/", "secret_file": "@"}, "without user and password"),
        ({"url": "https://x", "secret_file": "nowhere"}, "cannot be read"),
        ({"url": "https://x", "secret_file": "@", "timeout_seconds": "nan"}, "timeout_seconds"),
        ({"url": "https://x", "secret_file": "@", "retries": "3"}, "retries is not known"),
    ],
)
def test_wrong_options_of_a_webhook_are_named(
    tmp_path: Path, options: dict[str, str], problem: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("whsec_" + base64.b64encode(SECRET).decode())
    given = {name: str(secret) if value == "@" else value for name, value in options.items()}

    with pytest.raises(ConfigurationError, match=problem):
        open_sink(given)


@pytest.mark.parametrize("content", ["", "whsec_", "whsec_c2hvcnQ=", "not base64 at all", "\xff"])
def test_a_secret_that_protects_nothing_is_refused_and_not_shown(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "secret"
    path.write_text(content, encoding="latin-1")

    with pytest.raises(ConfigurationError, match="at least 24 random bytes") as error:
        read_secrets(path)
    assert "c2hvcnQ=" not in str(error.value)


class FakeProducer:
    """What a Kafka client does, without brokers."""

    def __init__(self, failures: list[Exception] | None = None, *, starts: bool = True) -> None:
        self.records: list[tuple[Any, ...]] = []
        self.failures = failures or []
        self.starts = starts
        self.started = self.stopped = 0

    async def start(self) -> None:
        await asyncio.sleep(0)
        self.started += 1
        if not self.starts:
            raise KafkaConnectionError("no broker")

    async def stop(self) -> None:
        self.stopped += 1

    async def send_and_wait(self, topic: str, value: bytes, key: bytes, *, headers: Any) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.records.append((topic, value, key, headers))


async def test_kafka_records_are_keyed_by_instance() -> None:
    producer = FakeProducer()
    sink = KafkaSink("orders", lambda: producer)
    await sink.open()
    await asyncio.gather(sink.deliver(MESSAGE), sink.deliver(MESSAGE))
    await sink.close()

    headers = [("id", b"E-1"), ("type", b"TIMER_FIRED")]
    assert producer.records == [("orders", b'{"a":1}', b"I-1", headers)] * 2
    assert (producer.started, producer.stopped) == (1, 1)


async def test_kafka_refuses_what_is_too_large_and_tries_the_rest_again() -> None:
    producer = FakeProducer([MessageSizeTooLargeError("2 MB"), KafkaConnectionError("gone")])
    sink = KafkaSink("orders", lambda: producer)

    with pytest.raises(RefusedError, match="MessageSizeTooLargeError"):
        await sink.deliver(MESSAGE)
    with pytest.raises(KafkaConnectionError):
        await sink.deliver(MESSAGE)
    await sink.deliver(MESSAGE)
    assert len(producer.records) == 1


async def test_kafka_brokers_may_come_later() -> None:
    producers = [FakeProducer(starts=False), FakeProducer()]
    pending = iter(producers)
    sink = KafkaSink("orders", lambda: next(pending))
    await sink.open()

    with pytest.raises(KafkaConnectionError):
        await sink.deliver(MESSAGE)
    await sink.deliver(MESSAGE)

    assert producers[0].stopped == 1
    assert len(producers[1].records) == 1


def test_kafka_connects_with_a_password_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("s3cr3t\n")
    options = {
        "bootstrap_servers": "a:1,b:2",
        "topic": "t",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_username": "relay",
        "sasl_password_file": str(path),
    }

    given = connection(options)

    assert given.pop("ssl_context") is not None
    assert given == {
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "relay",
        "sasl_plain_password": "s3cr3t",
    }
    with pytest.raises(ConfigurationError, match="sasl_password_file"):
        connection(options | {"sasl_password_file": str(tmp_path / "none")})


def offer(monkeypatch: pytest.MonkeyPatch, *entries: tuple[str, str]) -> None:
    points = EntryPoints(
        EntryPoint(name=name, value=value, group=sinks.ENTRY_POINT_GROUP) for name, value in entries
    )
    monkeypatch.setattr(sinks, "entry_points", lambda group: points)


def open_listed(options: dict[str, str]) -> object:
    """Be the function that an entry point of a test names."""
    return ("listed", options)


def test_a_sink_of_ones_own_is_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, ("mine", f"{__name__}:open_listed"))

    assert load_sink("mine", {"a": "1"}) == ("listed", {"a": "1"})  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("entries", "name", "problem"),
    [
        ((), "mine", "no sink 'mine'; known are kafka, stdout, webhook"),
        ((("mine", "nowhere:f"),), "mine", "cannot be imported: ModuleNotFoundError"),
        ((("mine", "a:f"), ("mine", "b:f")), "mine", "offered by a:f and b:f"),
        ((("stdout", "a:f"),), "stdout", "is built in, and a:f offers"),
    ],
)
def test_a_sink_that_cannot_be_found_says_why(
    monkeypatch: pytest.MonkeyPatch, entries: tuple[tuple[str, str], ...], name: str, problem: str
) -> None:
    offer(monkeypatch, *entries)

    with pytest.raises(ConfigurationError, match=problem):
        load_sink(name, {})


def test_a_sink_without_its_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> None:
        raise ModuleNotFoundError("No module named 'aiokafka'", name="aiokafka")

    monkeypatch.setattr(sinks, "import_module", missing)

    with pytest.raises(ConfigurationError, match=r"pip install 'kikwiflow-worker\[kafka\]'"):
        load_sink("kafka", {})


def test_the_built_in_sinks_open() -> None:
    assert isinstance(load_sink("stdout", {}), StdoutSink)
    assert isinstance(load_sink("kafka", {"bootstrap_servers": "a:1", "topic": "t"}), KafkaSink)


def test_an_event_whose_key_is_not_here_stands_in_nobodys_way() -> None:
    sealed = Binary(b"\x01\x02k1" + b"n" * 12 + b"c" * 32, SUBTYPE)
    row = {
        "_id": "E-1",
        "eventType": "PROCESS_VARIABLE_CHANGED",
        "timestamp": AT,
        "processInstanceId": "I-1",
        "processDefinitionId": "D-1",
        "payload": {"name": "card", "value": sealed},
        "sequence": Timestamp(1, 2),
        "relayStatus": "PENDING",
    }

    event = decode_event(row, None)

    assert event.payload == {}
    assert event.unreadable
    assert event.sequence == "0000000001.0000000002"
