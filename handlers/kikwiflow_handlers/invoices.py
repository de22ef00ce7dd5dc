"""Invoices by mail: a handler that fails and is tried again."""

from kikwiflow_handlers.remote import remote_call
from kikwiflow_worker.handler import ExecutionContext, task_handler


@task_handler("sendInvoice", timeout_s=30)
async def send_invoice(ctx: ExecutionContext) -> None:
    """Send an invoice through a server that refuses the first attempts.

    Any exception means: try again as the node's retry policy says. What a failed attempt has set is forgotten.
    The extension property ``failingAttempts`` says how many attempts fail.

    Raises:
        ConnectionError: The server refuses.
    """
    await remote_call(ctx)
    ctx.set("sentAtAttempt", ctx.attempt)
    failing = int(ctx.view.extension_properties.get("failingAttempts", "0"))
    if ctx.attempt <= failing:
        raise ConnectionError(f"the mail server refused attempt {ctx.attempt}")
