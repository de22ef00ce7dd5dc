"""Encrypts values of variables, and texts that may quote them, before they are stored; decrypts them again (ADR 0033).

A sealed value is a Binary of subtype 225: a version (1), the length of the key's name, the name in ASCII, a nonce of 12
bytes, and AES-256-GCM's ciphertext with its tag of 16 bytes. The plaintext is the BSON document ``{"v": value}`` with the
value as it would be stored plain. Authenticated with it are the version, what the value belongs to (an instance, a
message, a task, an event) and its name there, so that it is worth nothing in another place.
"""

import os
from collections.abc import Mapping
from typing import Any, NoReturn

from bson import decode, encode
from bson.binary import Binary

from kikwiflow_worker.errors import ConfigurationError, EncryptionError
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo.driver import CODEC_OPTIONS

SUBTYPE = 225
_VERSION = 1
_HEAD = 2
_NONCE_BYTES = 12
_TAG_BYTES = 16


class Sealing:
    """Seals values with the current key of a ring, and opens what any of its keys sealed.

    Raises:
        ConfigurationError: The extra ``crypto`` is not installed.
    """

    def __init__(self, ring: KeyRing) -> None:
        try:
            from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - an optional extra
            from cryptography.hazmat.primitives.ciphers.aead import (  # noqa: PLC0415 - an optional extra
                AESGCM,
            )
        except ImportError as error:
            raise ConfigurationError(
                "encryption keys are given, and encrypting needs the extra: pip install 'kikwiflow-worker[crypto]'"
            ) from error
        self._invalid_tag = InvalidTag
        self._ciphers = {key_id: AESGCM(key) for key_id, key in ring.keys.items()}
        self.current = ring.current

    @property
    def key_ids(self) -> frozenset[str]:
        """The names of the keys."""
        return frozenset(self._ciphers)

    def seal(self, owner: str, name: str, stored: Any) -> Any:
        """Return a value, given as it would be stored, sealed with the current key; as it is if there is none.

        Args:
            owner: What the value belongs to, such as an instance's id.
        """
        if self.current is None:
            return stored
        nonce = os.urandom(_NONCE_BYTES)
        head = bytes((_VERSION, len(self.current))) + self.current.encode("ascii")
        plaintext = encode({"v": stored}, codec_options=CODEC_OPTIONS)
        sealed = self._ciphers[self.current].encrypt(nonce, plaintext, _bound_to(owner, name))
        return Binary(head + nonce + sealed, SUBTYPE)

    def open(self, owner: str, name: str, sealed: bytes) -> Any:
        """Return the value as it would be stored plain.

        Raises:
            EncryptionError: Its key is not in the ring, is another one, or the value was altered or moved.
        """
        key_id, begins = _head(owner, name, sealed)
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            unreadable(owner, name, key_id)
        nonce, ciphertext = sealed[begins : begins + _NONCE_BYTES], sealed[begins + _NONCE_BYTES :]
        try:
            plaintext = cipher.decrypt(nonce, ciphertext, _bound_to(owner, name))
        except self._invalid_tag:
            raise EncryptionError(
                f"{name!r} of {owner} cannot be decrypted with key {key_id!r}: the key is another one than it was "
                "encrypted with, or the value was altered or moved; restore the key, or the value from a backup"
            ) from None
        return decode(plaintext, codec_options=CODEC_OPTIONS)["v"]

    def is_current(self, stored: Any) -> bool:
        """Return whether a stored value has the form that ``seal`` would give it now."""
        if not is_sealed(stored):
            return self.current is None
        return self.current is not None and key_of(stored) == self.current


def is_sealed(stored: Any) -> bool:
    """Return whether a stored value is sealed; a plain one of bytes has another subtype."""
    return type(stored) is Binary and stored.subtype == SUBTYPE


def key_of(sealed: bytes) -> str:
    """Return the name of the key that a value was sealed with.

    Raises:
        EncryptionError: It is no sealed value that this release knows.
    """
    return _head("a document", "a value", sealed)[0]


def seal_text(sealing: Sealing | None, owner: str, name: str, text: str | None) -> Any:
    """Return a text as it is to be stored: sealed, if there are keys; None, if there is no text."""
    return text if sealing is None or text is None else sealing.seal(owner, name, text)


def open_text(sealing: Sealing | None, owner: str, name: str, stored: Any) -> str:
    """Return a stored text, to look at; if it is sealed and cannot be opened, the reason stands in its place."""
    try:
        return str(open_sealed(sealing, owner, name, stored))
    except EncryptionError as error:
        return f"{type(error).__name__}: {error}"


def find_text(
    sealing: Sealing | None, owner: str, name: str, fields: Mapping[str, Any]
) -> str | None:
    """Return the text of a field, to look at, as ``open_text`` does; None if there is none."""
    stored = fields.get(name)
    return None if stored is None else open_text(sealing, owner, name, stored)


def open_sealed(sealing: Sealing | None, owner: str, name: str, stored: Any) -> Any:
    """Return a stored value as it would be stored plain.

    Raises:
        EncryptionError: It is sealed, and ``sealing`` cannot open it.
    """
    if not is_sealed(stored):
        return stored
    if sealing is None:
        unreadable(owner, name, _head(owner, name, stored)[0])
    return sealing.open(owner, name, stored)


def unreadable(owner: str, name: str, key_id: str) -> NoReturn:
    """Raise that a key is not there."""
    raise EncryptionError(
        f"{name!r} of {owner} is encrypted with key {key_id!r}, which is not here; "
        "add it to the file that encryption_key_file names, restart, then retry"
    )


def _head(owner: str, name: str, sealed: bytes) -> tuple[str, int]:
    """Return the key's name, and where the nonce begins."""
    begins = _HEAD + sealed[1] if len(sealed) > _HEAD else 0
    if not begins or sealed[0] != _VERSION or len(sealed) < begins + _NONCE_BYTES + _TAG_BYTES:
        raise EncryptionError(
            f"{name!r} of {owner} is encrypted in a form that this release does not know; "
            "use the release that wrote it, or restore the value from a backup"
        )
    return sealed[_HEAD:begins].decode("ascii", "replace"), begins


def _bound_to(owner: str, name: str) -> bytes:
    place = owner.encode("utf-8", "surrogatepass")
    return b"%d %d %b%b" % (_VERSION, len(place), place, name.encode("utf-8", "surrogatepass"))
