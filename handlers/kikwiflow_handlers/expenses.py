"""Expenses that a manager approves: a business error, an idempotency key."""

from collections.abc import Mapping

from kikwiflow_handlers.bank import Bank
from kikwiflow_handlers.reading import read_amount, read_text
from kikwiflow_handlers.remote import blocking_call, remote_call
from kikwiflow_worker.handler import ExecutionContext, ProcessError, task_handler


@task_handler("checkExpense")
async def check_expense(ctx: ExecutionContext) -> None:
    """Write what the manager reads.

    Raises:
        ProcessError: INVALID_EXPENSE if the amount is not above zero. The process may have a boundary error handler
            for that code; without one an incident opens.
    """
    employee, amount = read_text(ctx, "employee"), read_amount(ctx, "amount")
    if amount <= 0:
        raise ProcessError("INVALID_EXPENSE", "an expense must be above zero")
    await remote_call(ctx)
    ctx.set("summary", f"{employee} asks for {amount:.2f} EUR ({ctx.business_key})")


@task_handler("payExpense", timeout_s=60)
def pay_expense(ctx: ExecutionContext) -> Mapping[str, object]:
    """Pay through a client library that blocks: a handler that is not ``async`` runs in a thread of its own.

    If the worker dies between the transfer and the commit, another one runs this again, with the same key.
    """
    receipt = Bank.from_environment().transfer(
        ctx.business_key, read_amount(ctx, "amount"), key=ctx.idempotency_key
    )
    blocking_call(ctx)
    return {"outcome": "PAID", "receipt": receipt}


@task_handler("informEmployee")
async def inform_employee(ctx: ExecutionContext) -> Mapping[str, object]:
    """Tell the employee that there will be no money."""
    await remote_call(ctx)
    return {"outcome": "REFUSED"}
