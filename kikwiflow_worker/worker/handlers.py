"""What running user code takes: the registry, a thread pool for plain functions, and the record of what runs."""

from concurrent.futures import ThreadPoolExecutor

from kikwiflow_worker.worker.invoker import StepInvoker
from kikwiflow_worker.worker.loop_monitor import RunningHandlers
from kikwiflow_worker.worker.registry import HandlerRegistry


class HandlerRuntime:
    """Makes an invoker for each step.

    Args:
        threads: How many handlers that are not coroutines can run at once.
    """

    def __init__(self, registry: HandlerRegistry, *, threads: int) -> None:
        self.registry = registry
        self.running = RunningHandlers()
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="handler")

    def invoker(self) -> StepInvoker:
        """Return an invoker for one step."""
        return StepInvoker(self.registry, self._executor, self.running)

    def close(self) -> None:
        """Let the threads end when their handlers do, without waiting for them."""
        self._executor.shutdown(wait=False, cancel_futures=True)
