"""The texts that callers name things with: ids, keys, tenants, people. Only a text is ever looked for or stored as one."""

from kikwiflow_worker.errors import OperationError

MAX_TEXT_BYTES = 1024 * 1024
"""A longer text is refused, as a variable of that length is."""


_LINE_ENDS = str.maketrans({"%": "%25", "\n": "%0A"})


def check_texts(**texts: object) -> None:
    """Refuse what cannot be the text that its name says; None, for one that is not given, is no fault.

    A program may hand on what it was sent: an object instead of a text would reach the database as an operator, and
    match what it was never meant for.

    Raises:
        OperationError: One is no text, holds half of a surrogate pair, or is too long. It is named and not repeated.
    """
    for name, text in texts.items():
        words = name.replace("_", " ")
        if text is None:
            continue
        if not isinstance(text, str):
            raise OperationError(f"the {words} is a {type(text).__qualname__}; give a text")
        if not is_unicode(text):
            raise OperationError(
                f"the {words} is not valid Unicode; correct its bytes to UTF-8, or its surrogates to pairs"
            )
        size = len(text.encode())
        if size > MAX_TEXT_BYTES:
            raise OperationError(
                f"the {words} has {size:,} bytes, the limit is {MAX_TEXT_BYTES:,}; shorten it"
            )


def tenant_scoped(name: str, tenant_id: str | None) -> str:
    """Return the id of something that callers name; names of different tenants never meet, whatever they hold."""
    tenant = "" if tenant_id is None else tenant_id.translate(_LINE_ENDS) or "%"
    return f"{tenant}\n{name}"


def storable(text: str) -> str:
    """Return a text of somebody else, such as the message of an exception, in a form that can be stored."""
    return text.encode("utf-8", "backslashreplace").decode()


def is_unicode(text: str) -> bool:
    """Return whether a text can be stored: it holds no half of a surrogate pair."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
