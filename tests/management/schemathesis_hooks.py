"""What Schemathesis loads before it begins: each request gets an idempotency key of its own, since repeats are not carried out."""

from typing import Any
from uuid import uuid4

import schemathesis

KEY = "Idempotency-Key"


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]
) -> None:
    """Make a key unique if it could be one; those that could not must be refused."""
    key = (case.headers or {}).get(KEY)
    if isinstance(key, str) and key and key.isascii() and key.isprintable() and len(key) <= 255:
        case.headers[KEY] = str(uuid4())
