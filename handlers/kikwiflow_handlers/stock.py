"""Asking several warehouses at once: handlers of parallel branches that change the same variables."""

import zlib
from typing import cast

from kikwiflow_handlers.reading import read_text
from kikwiflow_handlers.remote import remote_call
from kikwiflow_worker.handler import ExecutionContext, Fatal, task_handler


@task_handler("checkStock", timeout_s=30)
async def check_stock(ctx: ExecutionContext) -> None:
    """Ask the warehouse that the node's extension property ``warehouse`` names.

    One handler serves several nodes. Branches run at the same time, maybe on different workers: ``increment`` and
    ``append`` lose nothing, where reading a variable and setting it again would.
    """
    warehouse = ctx.view.extension_properties.get("warehouse")
    if warehouse is None:
        raise Fatal(f"node {ctx.node_id} needs the extension property 'warehouse'")
    await remote_call(ctx)
    pieces = pieces_in(warehouse, read_text(ctx, "article"))
    ctx.increment("available", by=pieces)
    ctx.append("answers", {"warehouse": warehouse, "pieces": pieces})


@task_handler("chooseWarehouse")
def choose_warehouse(ctx: ExecutionContext) -> None:
    """Take the warehouse with the most pieces; among equals the first by name."""
    answers = cast(list[dict[str, object]], ctx["answers"])
    best = min(answers, key=lambda answer: (-cast(int, answer["pieces"]), str(answer["warehouse"])))
    ctx.set("warehouse", best["warehouse"])
    ctx.unset("answers")


def pieces_in(warehouse: str, article: str) -> int:
    """Return what a warehouse has of an article: invented, and always the same."""
    return zlib.crc32(f"{warehouse}/{article}".encode()) % 50
