"""The keys that values of variables are encrypted with, as a file holds them.

One key a line, its name and 32 random bytes in base64; the first is the one that encrypts, the others only decrypt::

    # made by: openssl rand -base64 32
    2026-11 b3BlbiBzZXNhbWUgb3BlbiBzZXNhbWUgb3BlbiBzZXM=
    2026-05 c2VzYW1lIG9wZW4gc2VzYW1lIG9wZW4gc2VzYW1lIG8=

``plain`` in the place of the first key writes values as they are, and still reads what is encrypted.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kikwiflow_worker.errors import ConfigurationError

PLAIN = "plain"
KEY_BYTES = 32
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")


@dataclass(frozen=True, slots=True)
class KeyRing:
    """Keys by their names.

    Attributes:
        current: The one that new values are encrypted with; None writes them plain.
    """

    keys: Mapping[str, bytes] = field(repr=False)
    current: str | None

    @classmethod
    def read(cls, path: Path) -> "KeyRing":
        """Return the keys of a file.

        Raises:
            ConfigurationError: It cannot be read, or a line is no key. No key is quoted.
        """
        try:
            text = path.read_text(encoding="ascii")
        except OSError as error:
            raise ConfigurationError(
                f"the encryption keys {path} cannot be read ({error.strerror}); check the path and its permissions"
            ) from error
        except ValueError:
            # Not chained: a decoding error quotes the bytes of the secret.
            raise ConfigurationError(
                f"the encryption keys {path} are no ASCII text; write a name and a key in base64 on each line"
            ) from None
        return cls.parse(text, name=str(path))

    @classmethod
    def parse(cls, text: str, *, name: str) -> "KeyRing":
        """Return the keys of a text; ``name`` is what messages call it.

        Raises:
            ConfigurationError: A line is no key, or there is none. No key is quoted.
        """
        keys: dict[str, bytes] = {}
        first: str | None = None
        for number, line in enumerate(text.splitlines(), start=1):
            words = line.split()
            if not words or line.lstrip().startswith("#"):
                continue
            where = f"line {number} of the encryption keys {name}"
            key_id = words[0]
            if words == [PLAIN] and first is None:
                first = PLAIN
                continue
            if len(words) != 2 or not _KEY_ID.fullmatch(key_id) or key_id == PLAIN:
                raise ConfigurationError(
                    f"{where} is no name of up to 32 letters, digits, - and _ with a key behind it; "
                    "write: NAME KEY, the key as made by openssl rand -base64 32"
                )
            if key_id in keys:
                raise ConfigurationError(
                    f"{where} repeats the name {key_id!r}; give each key its own"
                )
            keys[key_id] = _key(words[1], where)
            first = first or key_id
        if not keys:
            raise ConfigurationError(
                f"the encryption keys {name} hold no key; write a name and the output of openssl rand -base64 32"
            )
        return cls(keys, None if first == PLAIN else first)


def _key(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigurationError(
            f"{where} holds a key that is not {KEY_BYTES} bytes in base64; make one by: openssl rand -base64 {KEY_BYTES}"
        )
    return key
