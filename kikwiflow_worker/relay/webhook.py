"""Posts events to a URL, signed as the Standard Webhooks specification says (standardwebhooks.com, version 1).

Receivers verify with one of its libraries, or by hand: ``webhook-signature`` holds ``v1,`` and the base64 of the HMAC-SHA256 of
``{webhook-id}.{webhook-timestamp}.{body}``, once for each secret.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from kikwiflow_worker.clock import Clock, SystemClock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.relay.message import Message
from kikwiflow_worker.relay.sinks import Options, RefusedError, check_options

_REFUSALS = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.GONE,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
    }
)
"""What says that the event itself is wrong; 401 or 404 say that the set-up is, and are waited out like an outage."""

_PREFIX = "whsec_"
_LEAST_SECRET_BYTES = 24
_CONNECT_S = 5.0


class WebhookSink:
    """Posts each event by itself.

    Args:
        secrets: The receiver accepts a signature by any of them, so that they can be rotated.
        timeout_s: For one answer.
        transport: Instead of the network, for tests.
    """

    def __init__(
        self,
        url: str,
        secrets: Sequence[bytes],
        *,
        clock: Clock,
        timeout_s: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._url = url
        self._secrets = secrets
        self._clock = clock
        self._timeout = httpx.Timeout(timeout_s, connect=min(_CONNECT_S, timeout_s))
        self._transport = transport
        self._client: httpx.AsyncClient | None = None

    async def open(self) -> None:
        """Make the client; it connects with the first event."""
        self._client = httpx.AsyncClient(
            timeout=self._timeout, transport=self._transport, trust_env=False
        )

    async def deliver(self, message: Message) -> None:
        """Post the event; only an answer of 2xx counts."""
        if self._client is None:
            raise RuntimeError("open() was not called")
        timestamp = str(int(self._clock.now().timestamp()))
        headers = {
            "content-type": "application/json",
            "webhook-id": message.id,
            "webhook-timestamp": timestamp,
            "webhook-signature": sign(message.id, timestamp, message.body, self._secrets),
            "kikwiflow-event-type": message.type,
        }
        answer = await self._client.post(self._url, content=message.body, headers=headers)
        if answer.is_success:
            return
        said = f"the receiver answered {answer.status_code} {answer.reason_phrase}".rstrip()
        raise RefusedError(said) if answer.status_code in _REFUSALS else OSError(said)

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()


def sign(message_id: str, timestamp: str, body: bytes, secrets: Sequence[bytes]) -> str:
    """Return the signatures of a message, one for each secret, with a space between them."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    digests = (hmac.new(secret, signed, sha256).digest() for secret in secrets)
    return " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests)


def open_sink(options: Options) -> WebhookSink:
    """Return a sink that posts to ``url`` with the secrets in ``secret_file``.

    Raises:
        ConfigurationError: An option is missing, unknown or wrong.
    """
    check_options("webhook", options, required={"url", "secret_file"}, optional={"timeout_seconds"})
    parts = urlsplit(options["url"])
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ConfigurationError(
            "relay_options of sink 'webhook': url is not http://HOST/... or https://HOST/..., without user and password"
        )
    return WebhookSink(
        options["url"],
        read_secrets(Path(options["secret_file"])),
        clock=SystemClock(),
        timeout_s=_seconds(options.get("timeout_seconds", "10")),
    )


def read_secrets(path: Path) -> tuple[bytes, ...]:
    """Return the secrets in a file, one in each line, as ``whsec_`` and base64; the first two are used while rotating.

    Raises:
        ConfigurationError: It cannot be read, or holds none or one that is too short.
    """
    try:
        lines = path.read_text(encoding="ascii").split()
    except OSError as error:
        raise ConfigurationError(
            f"relay_options of sink 'webhook': secret_file {path} cannot be read ({error.strerror})"
        ) from error
    except ValueError:
        lines = []
    secrets = tuple(map(_secret, lines))
    if not secrets or any(len(secret) < _LEAST_SECRET_BYTES for secret in secrets):
        raise ConfigurationError(
            f"relay_options of sink 'webhook': secret_file {path} must hold a secret in each line, {_PREFIX} and the base64 "
            f"of at least {_LEAST_SECRET_BYTES} random bytes: "
            "python3 -c \"import base64, os; print('whsec_' + base64.b64encode(os.urandom(32)).decode())\""
        )
    return secrets


def _secret(line: str) -> bytes:
    try:
        return base64.b64decode(line.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        return b""


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 15:
        raise ConfigurationError(
            "relay_options of sink 'webhook': timeout_seconds is not a number from 0.1 to 15"
        )
    return seconds
