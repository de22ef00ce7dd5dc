"""The commercial half of an order: validation, risk, payment."""

from collections.abc import Mapping
from decimal import Decimal

from kikwiflow_handlers.bank import Bank
from kikwiflow_handlers.reading import read_amount, read_lines
from kikwiflow_handlers.remote import blocking_call, remote_call
from kikwiflow_worker.handler import (
    EvaluationContext,
    ExecutionContext,
    ProcessError,
    answer_provider,
    task_handler,
)

_RISKY_FROM = Decimal(1000)
_CARD_LIMIT = Decimal(10_000)


@task_handler("validateOrder")
async def validate_order(ctx: ExecutionContext) -> None:
    """Add up the lines; an order without any is hopeless (``Fatal``), so nobody waits for further attempts."""
    lines = read_lines(ctx)
    await remote_call(ctx)
    ctx.set("total", sum((pieces * price for pieces, price in lines), Decimal(0)))
    ctx.set("pieces", sum(pieces for pieces, _ in lines))


@answer_provider("assessRisk")
async def assess_risk(ctx: EvaluationContext) -> str:
    """Answer a gateway; a provider sees the variables and changes none."""
    is_risky = ctx.get("isNewCustomer") is True and read_amount(ctx, "total") >= _RISKY_FROM
    return "HIGH" if is_risky else "LOW"


@task_handler("chargeCard", timeout_s=60)
def charge_card(ctx: ExecutionContext) -> Mapping[str, object]:
    """Charge the customer's card once, however often this runs.

    Raises:
        ProcessError: CARD_REFUSED above the card's limit.
    """
    total = read_amount(ctx, "total")
    if total > _CARD_LIMIT:
        raise ProcessError("CARD_REFUSED", f"{total:.2f} is above the limit of the card")
    receipt = Bank.from_environment().transfer(ctx.business_key, total, key=ctx.idempotency_key)
    blocking_call(ctx)
    return {"receipt": receipt}


@task_handler("cancelOrder")
async def cancel_order(ctx: ExecutionContext) -> Mapping[str, object]:
    """Tell the customer that the order is not accepted."""
    await remote_call(ctx)
    return {"outcome": "REJECTED"}
