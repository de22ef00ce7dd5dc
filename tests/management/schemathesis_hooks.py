"""What Schemathesis loads before it begins: what would keep it from looking is taken out of its requests.

A repeated idempotency key is answered from before, and a long poll answers after up to a minute.
"""

from typing import Any
from uuid import uuid4

import schemathesis

KEY = "Idempotency-Key"


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]
) -> None:
    """Make a key unique if it could be one, and let nobody wait; what could not be must still be refused."""
    key = (case.headers or {}).get(KEY)
    if isinstance(key, str) and key and key.isascii() and key.isprintable() and len(key) <= 255:
        case.headers[KEY] = str(uuid4())
    if isinstance(case.body, dict) and isinstance(case.body.get("waitSeconds"), int | float):
        case.body["waitSeconds"] = min(case.body["waitSeconds"], 0)
