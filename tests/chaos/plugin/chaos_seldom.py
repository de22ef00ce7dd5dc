"""Handlers that some workers lack: what needs one waits for a worker that has it."""

from chaos_handlers import act

from kikwiflow_worker.handler import ExecutionContext, task_handler


@task_handler
async def chaos_seldom_step(context: ExecutionContext) -> None:
    """Do what the node says."""
    await act(context)
