"""Keys, and what is made of a value with one of them."""

import base64
from pathlib import Path

import pytest
from bson.binary import Binary

from kikwiflow_worker.errors import ConfigurationError, EncryptionError
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo.sealing import SUBTYPE, Sealing, is_sealed, key_of, open_sealed

KEY = bytes(range(32))
RING = KeyRing({"2026-11": KEY, "old": bytes(32)}, current="2026-11")
FROZEN = base64.b64decode(
    "AQcyMDI2LTExAAECAwQFBgcICQoLVALWG8eTwhyNQZe6g9lWWLPWh3EKJmxgAqjswi59F8iST0k="
)


def text_of(key: bytes) -> str:
    return base64.b64encode(key).decode()


# --- the file of keys


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    text = f"# keys\n\n2026-11 {text_of(KEY)}\nold  {text_of(bytes(32))}\n"

    assert KeyRing.parse(text, name="keys") == RING


def test_plain_first_encrypts_nothing() -> None:
    ring = KeyRing.parse(f"plain\nold {text_of(bytes(32))}\n", name="keys")

    assert ring == KeyRing({"old": bytes(32)}, current=None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "hold no key"),
        ("plain\n", "hold no key"),
        (f"{text_of(KEY)}\n", "line 1 .* is no name"),
        (f"a.b {text_of(KEY)}\n", "line 1 .* is no name"),
        (f"plain {text_of(KEY)}\n", "line 1 .* is no name"),
        (f"k {text_of(KEY)}\nplain\n", "line 2 .* is no name"),
        (f"k {text_of(KEY)}\nk {text_of(KEY)}\n", "line 2 .* repeats the name 'k'"),
        (f"k {text_of(KEY[:16])}\n", "line 1 .* not 32 bytes"),
        ("k not-base64!\n", "line 1 .* not 32 bytes"),
    ],
)
def test_what_is_no_key_is_named_by_its_line_and_never_quoted(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        KeyRing.parse(text, name="keys")

    assert text_of(KEY)[:12] not in str(refused.value)
    assert "not-base64" not in str(refused.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere cannot be read"):
        KeyRing.read(tmp_path / "nowhere")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="binary are no ASCII text"):
        KeyRing.read(tmp_path / "binary")


def test_keys_are_in_no_representation() -> None:
    assert repr(KEY)[2:12] not in repr(RING)


# --- values


def test_a_value_comes_back_where_it_was_sealed() -> None:
    sealing = Sealing(RING)
    sealed = sealing.seal("instance-1", "amount", {"n": [1, "two"]})

    assert is_sealed(sealed)
    assert key_of(sealed) == "2026-11"
    assert b"two" not in sealed
    assert sealing.open("instance-1", "amount", sealed) == {"n": [1, "two"]}
    assert sealing.seal("instance-1", "amount", {"n": [1, "two"]}) != sealed


@pytest.mark.parametrize(
    ("owner", "name"), [("instance-2", "a"), ("instance-1", "b"), ("instance-1a", "")]
)
def test_it_does_not_come_back_in_another_place(owner: str, name: str) -> None:
    sealing = Sealing(RING)
    sealed = sealing.seal("instance-1", "a", 1)

    with pytest.raises(EncryptionError, match="altered or moved"):
        sealing.open(owner, name, sealed)


def test_no_bit_of_it_can_be_changed() -> None:
    sealing = Sealing(RING)
    sealed = sealing.seal("instance-1", "a", "value")

    for position in range(len(sealed)):
        altered = bytearray(sealed)
        altered[position] ^= 1
        with pytest.raises(EncryptionError):
            sealing.open("instance-1", "a", bytes(altered))
        with pytest.raises(EncryptionError):
            sealing.open("instance-1", "a", bytes(sealed[:position]))


def test_bytes_of_a_user_are_never_taken_for_a_sealed_value() -> None:
    sealed = Sealing(RING).seal("instance-1", "a", 1)

    assert not is_sealed(bytes(sealed))
    assert open_sealed(None, "instance-1", "a", bytes(sealed)) == bytes(sealed)


def test_without_the_key_the_error_names_it_and_no_value() -> None:
    sealed = Sealing(RING).seal("instance-1", "a", 1)

    for sealing in (None, Sealing(KeyRing({"old": bytes(32)}, current="old"))):
        with pytest.raises(
            EncryptionError, match=r"'a' of instance-1 is encrypted with key '2026-11'"
        ):
            open_sealed(sealing, "instance-1", "a", sealed)


def test_a_value_that_an_earlier_release_sealed_can_be_opened() -> None:
    assert Sealing(RING).open("instance-1", "amount", Binary(FROZEN, SUBTYPE)) == "120.50"
