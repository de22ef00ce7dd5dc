"""Sends events to a Kafka topic, keyed by instance, so that a partition holds each instance's events in their order."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError, RecordListTooLargeError, RecordTooLargeError

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.sinks import Options, RefusedError, check_options

_REFUSALS = (MessageSizeTooLargeError, RecordListTooLargeError, RecordTooLargeError)
"""What says that the event itself is wrong."""

Headers = Sequence[tuple[str, bytes]]


class Producer(Protocol):
    """What of ``AIOKafkaProducer`` is used."""

    async def start(self) -> None:
        """Connect."""
        ...

    async def stop(self) -> None:
        """Send what is left and disconnect."""
        ...

    async def send_and_wait(
        self, topic: str, value: bytes, key: bytes, *, headers: Headers
    ) -> object:
        """Return when the brokers have acknowledged the record."""
        ...


class KafkaSink:
    """Sends each event as one record.

    Args:
        new_producer: Makes the producer, on the event loop that it is to run on.
    """

    def __init__(self, topic: str, new_producer: Callable[[], Producer]) -> None:
        self._topic = topic
        self._new_producer = new_producer
        self._producer: Producer | None = None
        self._connecting = asyncio.Lock()

    async def open(self) -> None:
        """Do nothing: brokers that are away are waited for with the first event, like those that go away later."""

    async def deliver(self, message: Message) -> None:
        """Send the event and wait for all in-sync replicas."""
        producer = await self._connected()
        headers = [("id", message.id.encode()), ("type", message.type.encode())]
        try:
            await producer.send_and_wait(
                self._topic,
                message.body,
                message.instance_id.encode(),
                headers=headers,
            )
        except _REFUSALS as error:
            raise RefusedError(f"{type(error).__name__}: {error}") from error

    async def close(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _connected(self) -> Producer:
        async with self._connecting:
            if self._producer is None:
                producer = self._new_producer()
                try:
                    await producer.start()
                except BaseException:
                    await producer.stop()
                    raise
                self._producer = producer
            return self._producer


def open_sink(options: Options) -> KafkaSink:
    """Return a sink that sends to ``topic`` of the brokers ``bootstrap_servers``.

    Raises:
        ConfigurationError: An option is missing or unknown.
    """
    check_options(
        "kafka",
        options,
        required={"bootstrap_servers", "topic"},
        optional={"security_protocol", "sasl_mechanism", "sasl_username", "sasl_password_file"},
    )
    given = connection(options)

    def new_producer() -> Producer:
        producer: Producer = AIOKafkaProducer(acks="all", enable_idempotence=True, **given)
        return producer

    return KafkaSink(options["topic"], new_producer)


def connection(options: Options) -> dict[str, object]:
    """Return how to connect, in the words of ``AIOKafkaProducer``.

    Raises:
        ConfigurationError: The password's file cannot be read.
    """
    given: dict[str, object] = {
        "bootstrap_servers": options["bootstrap_servers"],
        "security_protocol": options.get("security_protocol", "PLAINTEXT"),
    }
    if "SSL" in str(given["security_protocol"]):
        given["ssl_context"] = ssl.create_default_context()
    if "sasl_mechanism" in options:
        given["sasl_mechanism"] = options["sasl_mechanism"]
        given["sasl_plain_username"] = options.get("sasl_username", "")
        given["sasl_plain_password"] = _password(options)
    return given


def _password(options: Options) -> str:
    path = Path(options.get("sasl_password_file", ""))
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"relay_options of sink 'kafka': sasl_password_file {str(path)!r} cannot be read"
        ) from error
