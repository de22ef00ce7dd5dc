"""What the demonstration starts, what its people answer, and what must come of it."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

PROCESSES = Path(__file__).parent / "processes"
KEYS = (
    *("price-quote", "stock-check", "expense-approval", "invoice-delivery"),
    *("equipment-return", "order-fulfilment"),
)
"""The processes, from the simplest to the most realistic."""

CALLED = ("device-inspection",)
"""Processes that only others start."""

_WAREHOUSES = ("north", "south", "west")
_CENT = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One instance.

    Attributes:
        answer: What a person sets when the process asks one, or a message brings; None if neither ever comes.
        expected: Variables it must end with.
        outcome: How it ends, in words.
        pays: What the bank must have moved for it, exactly once; None for nothing.
    """

    definition_key: str
    business_key: str
    variables: Mapping[str, object]
    expected: Mapping[str, object]
    outcome: str
    answer: Mapping[str, object] | None = None
    pays: Decimal | None = None


def plan(count: int) -> list[Case]:
    """Return ``count`` cases, mixed as on an ordinary day, the same every time."""
    return [_MIX[index % len(_MIX)](index) for index in range(count)]


def _quote(index: int) -> Case:
    pieces, price = 1 + index % 9, Decimal(30 + index % 200)
    net = pieces * price
    total = net * Decimal("0.95") if net >= 1000 else net
    return Case(
        definition_key="price-quote",
        business_key=f"QUOTE-{index:04}",
        variables={"lines": [{"pieces": pieces, "price": price}]},
        expected={"total": total.quantize(_CENT)},
        outcome="quoted",
    )


def _stock(index: int) -> Case:
    article = f"article {index % 17}"
    pieces = {name: zlib.crc32(f"{name}/{article}".encode()) % 50 for name in _WAREHOUSES}
    return Case(
        definition_key="stock-check",
        business_key=f"STOCK-{index:04}",
        variables={"article": article},
        expected={
            "available": sum(pieces.values()),
            "warehouse": min(pieces, key=lambda name: (-pieces[name], name)),
        },
        outcome="warehouse found",
    )


def _expense(index: int) -> Case:
    amount = Decimal(40 + 37 * index % 700)
    is_approved = amount < 500
    outcome = "PAID" if is_approved else "REFUSED"
    return Case(
        definition_key="expense-approval",
        business_key=f"EXPENSE-{index:04}",
        variables={"employee": f"employee {index % 23}", "amount": amount},
        expected={"outcome": outcome},
        outcome=outcome.lower(),
        answer={"approved": is_approved},
        pays=amount if is_approved else None,
    )


def _invoice(index: int) -> Case:
    return Case(
        definition_key="invoice-delivery",
        business_key=f"INVOICE-{index:04}",
        variables={"customer": f"customer {index % 31}"},
        expected={"sentAtAttempt": 3},
        outcome="sent at attempt 3",
    )


def _return(index: int) -> Case:
    nth = index // 20
    is_worthless, is_sent = nth % 3 == 2, nth % 3 == 0
    amount = Decimal(0 if is_worthless else 25 + 10 * nth)
    outcome = "PAID" if is_sent else "REFUSED"
    return Case(
        definition_key="equipment-return",
        business_key=f"RETURN-{index:04}",
        variables={
            "employee": f"employee {index % 23}",
            "amount": amount,
            "articles": [f"device {number}" for number in range(1 + nth % 4)],
            "returnNumber": index,
        },
        expected={"outcome": outcome},
        outcome="refused as worthless" if is_worthless else "paid back" if is_sent else "too late",
        answer={"carrier": "ROAD"} if is_sent else None,
        pays=amount if is_sent else None,
    )


def _order(index: int) -> Case:
    nth = index // 5
    is_risky, is_released = nth % 2 == 0, nth % 12 != 2
    lines = [
        {"pieces": 1 + line, "price": Decimal(600 if is_risky else 45)}
        for line in range(1 + nth % 3)
    ]
    total = sum(Decimal(1 + line) * (600 if is_risky else 45) for line in range(1 + nth % 3))
    is_reviewed = is_risky and total >= 1000
    delivered = is_released or not is_reviewed
    defects = nth % 3
    expected: dict[str, object] = {"outcome": "DELIVERED" if delivered else "REJECTED"}
    if delivered:
        expected |= {"handOvers": 1, "carrier": "AIR" if nth % 4 == 0 else "ROAD"}
        expected |= {"reworkCount": defects} if defects else {}
    return Case(
        definition_key="order-fulfilment",
        business_key=f"ORDER-{index:04}",
        variables={
            "lines": lines,
            "isNewCustomer": is_risky,
            "isExpress": nth % 4 == 0,
            "defects": defects,
        },
        expected=expected,
        outcome=str(expected["outcome"]).lower(),
        answer={"decision": "RELEASE" if is_released else "REJECT"} if is_reviewed else None,
        pays=Decimal(total) if delivered else None,
    )


_MIX: tuple[Callable[[int], Case], ...] = (
    *(_order, _quote, _stock, _expense, _quote),
    *(_order, _quote, _stock, _invoice, _quote),
    *(_order, _quote, _stock, _expense, _quote),
    *(_order, _quote, _stock, _invoice, _return),
)
