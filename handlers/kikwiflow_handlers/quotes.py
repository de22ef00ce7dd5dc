"""Price quotes: a handler that is a plain function and returns a mapping."""

from collections.abc import Mapping
from decimal import Decimal

from kikwiflow_handlers.reading import read_lines
from kikwiflow_worker.handler import ExecutionContext, task_handler

_DISCOUNT_FROM = Decimal(1000)
_DISCOUNT = Decimal("0.05")
_CENT = Decimal("0.01")


@task_handler("calculateQuote")
def calculate_quote(ctx: ExecutionContext) -> Mapping[str, object]:
    """Add up the lines, less five per cent from 1000 on; what is returned becomes variables."""
    net = sum((pieces * price for pieces, price in read_lines(ctx)), Decimal(0))
    discount = net * _DISCOUNT if net >= _DISCOUNT_FROM else Decimal(0)
    return {"discount": discount.quantize(_CENT), "total": (net - discount).quantize(_CENT)}
