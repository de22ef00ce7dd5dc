"""Reading variables as the type that a handler needs.

A variable that is missing or of another type does not heal by trying again, so these functions raise ``Fatal``: an
incident opens at once and says what to set.
"""

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation

from kikwiflow_worker.handler import Fatal
from kikwiflow_worker.model.variables import Value


def read_text(variables: Mapping[str, Value], name: str) -> str:
    """Return a text.

    Raises:
        Fatal: It is missing, blank, or no text.
    """
    value = variables.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Fatal(f"variable {name!r} must be a text; set it and retry the incident")
    return value


def read_amount(variables: Mapping[str, Value], name: str) -> Decimal:
    """Return an amount of money; whole numbers and texts such as ``"12.50"`` are taken as well.

    Raises:
        Fatal: It is missing, or no number.
    """
    value = variables.get(name)
    if isinstance(value, int | str | Decimal) and not isinstance(value, bool):
        try:
            amount = Decimal(value)
        except InvalidOperation:
            amount = Decimal("NaN")
        if amount.is_finite():
            return amount
    raise Fatal(f"variable {name!r} must be an amount; set it and retry the incident")


def read_count(variables: Mapping[str, Value], name: str, *, default: int) -> int:
    """Return a whole number, or ``default`` if there is none.

    Raises:
        Fatal: It is something else.
    """
    value = variables.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise Fatal(f"variable {name!r} must be a whole number; set it and retry the incident")
    return value


def read_lines(variables: Mapping[str, Value]) -> list[tuple[int, Decimal]]:
    """Return the variable ``lines``, a list of ``{"pieces": 2, "price": "9.90"}``, as pairs.

    Raises:
        Fatal: It is missing, empty, or holds something else.
    """
    lines = variables.get("lines")
    if not isinstance(lines, list) or not lines:
        raise Fatal("variable 'lines' must be a list of lines; set it and retry the incident")
    pairs = []
    for line in lines:
        if not isinstance(line, dict):
            raise Fatal(
                "each of 'lines' must have pieces and a price; correct it and retry the incident"
            )
        pairs.append((read_count(line, "pieces", default=1), read_amount(line, "price")))
    return pairs
