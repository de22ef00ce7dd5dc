"""Calling user code: the one place where handlers and providers run."""

import asyncio
import contextvars
import inspect
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import cast

from kikwiflow_worker.engine.effects import (
    Answered,
    AskAnswer,
    AskCorrelationKeys,
    AskDueDate,
    CallHandler,
    DueDateGiven,
    Failure,
    FailureKind,
    HandlerReturned,
    KeysGiven,
    Raised,
    UserCode,
    UserReply,
)
from kikwiflow_worker.errors import VariableError
from kikwiflow_worker.handler import (
    CorrelationItem,
    EvaluationContext,
    ExecutionContext,
    Fatal,
    HandlerSignal,
    ProcessError,
    RetryLater,
)
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.texts import storable
from kikwiflow_worker.model.variables import normalize, to_text
from kikwiflow_worker.operations.services import CancelReason, StepCancelledError
from kikwiflow_worker.worker.loop_monitor import RunningHandlers
from kikwiflow_worker.worker.registry import HandlerRegistry, RegisteredHandler

MAX_MESSAGE = 2_000
"""Characters of an error's message that are kept."""

MAX_STACK_TRACE = 20_000
"""Characters of a stack trace that are kept, the innermost ones."""

_MAX_CAUSES = 10


class StepInvoker:
    """Runs the user code of one step, and lets it be cancelled from outside without touching the commit after it.

    Args:
        executor: Runs handlers that are not coroutines.
        running: Is told what runs, so that a blocked loop can be blamed on it.
    """

    def __init__(
        self, registry: HandlerRegistry, executor: Executor, running: RunningHandlers
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._running = running
        self._reason: CancelReason | None = None
        self._context: EvaluationContext | None = None
        self._scope: asyncio.Timeout | None = None

    @property
    def capabilities(self) -> Capabilities:
        """The handlers and providers of this process."""
        return self._registry.capabilities

    def cancel(self, reason: CancelReason) -> None:
        """Stop the user code that runs now, and start none any more. Call it on the event loop."""
        self._reason = self._reason or reason
        if isinstance(self._context, ExecutionContext):
            self._context.cancel()
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def perform(self, effect: UserCode) -> UserReply:
        """Run what ``effect`` asks for; see ``Invoker.perform``."""
        handler = self._registry.find(effect.capability)
        if handler is None:
            failure = Failure(
                kind=FailureKind.TECHNICAL,
                error_type="HandlerNotFound",
                message=f"this worker has no {effect.capability}; install its distribution and restart",
            )
            return Raised(failure)
        match effect:
            case CallHandler():
                return await self._call_handler(
                    handler, ExecutionContext(effect.view, effect.variables, effect.transient)
                )
            case AskAnswer():
                context = EvaluationContext(effect.view, effect.variables)
                return await self._guarded(handler, context, _answered)
            case AskDueDate():
                context = EvaluationContext(effect.view, effect.variables)
                return await self._guarded(handler, context, _due_date)
            case AskCorrelationKeys():
                context = EvaluationContext(effect.view, effect.variables)
                return await self._guarded(handler, context, _keys)

    async def _call_handler(
        self, handler: RegisteredHandler, context: ExecutionContext
    ) -> UserReply:
        def returned(result: object) -> UserReply:
            if isinstance(result, Mapping):
                for name, value in result.items():
                    context.set(name, value)
            elif result is not None:
                raise TypeError(
                    f"a handler returns None or a mapping of variables, not {type(result).__name__}"
                )
            return HandlerReturned(context.changes, context.transient)

        reply = await self._guarded(handler, context, returned)
        if isinstance(reply, Raised):
            return replace(reply, changes=context.changes, transient=context.transient)
        return reply

    async def _guarded(
        self,
        handler: RegisteredHandler,
        context: EvaluationContext,
        convert: Callable[[object], UserReply],
    ) -> UserReply:
        if self._reason is not None:
            raise StepCancelledError(self._reason)
        view = context.view
        description = f"{handler.capability} of node {view.node_id}, instance {view.instance_id}"
        try:
            with self._running.running(description):
                return convert(await self._bounded(handler, context))
        except TimeoutError as error:
            if self._reason is not None:
                raise StepCancelledError(self._reason) from None
            if self._scope is None or not self._scope.expired():
                return Raised(failure_of(error))
            limit = handler.spec.timeout_s
            return Raised(failure_of(TimeoutError(f"the handler did not finish within {limit} s")))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return Raised(failure_of(RuntimeError("the handler cancelled itself")))
        # A handler that raises these must cost an attempt and neither its slot nor its worker.
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            return Raised(failure_of(error))
        finally:
            self._context = self._scope = None

    async def _bounded(self, handler: RegisteredHandler, context: EvaluationContext) -> object:
        self._context = context
        async with asyncio.timeout(handler.spec.timeout_s) as scope:
            self._scope = scope
            if handler.is_coroutine:
                result: object = await cast("Awaitable[object]", handler.function(context))
                return result
            function = partial(_result_or_error, handler.function, context)
            in_context = partial(contextvars.copy_context().run, function)
            loop = asyncio.get_running_loop()
            result, raised = await loop.run_in_executor(self._executor, in_context)
            if raised is not None:
                raise raised
            return await result if inspect.isawaitable(result) else result


def _result_or_error(
    function: Callable[..., object], context: EvaluationContext
) -> tuple[object, BaseException | None]:
    """Run a plain function in its thread; a future would not carry every exception as it is."""
    try:
        return function(context), None
    except BaseException as error:
        return None, error


def failure_of(error: BaseException) -> Failure:
    """Return what the engine needs to know about an exception that user code raised.

    A signal (``ProcessError``, ``RetryLater``, ``Fatal``) counts also when it is the cause of what was raised.
    """
    signal = _signal_in(error)
    kind, code, delay = FailureKind.TECHNICAL, None, timedelta(0)
    match signal:
        case ProcessError():
            kind, code = FailureKind.BUSINESS, signal.code
        case RetryLater():
            kind, delay = FailureKind.RETRY_LATER, signal.delay
        case Fatal():
            kind = FailureKind.FATAL
        case _:
            if isinstance(error, VariableError):
                kind = FailureKind.FATAL
    return Failure(
        kind=kind,
        error_type=type(signal or error).__name__,
        message=storable(str(error) or type(error).__name__)[:MAX_MESSAGE],
        stack_trace=storable("".join(traceback.format_exception(error)))[-MAX_STACK_TRACE:],
        code=code,
        delay=delay,
        cause=error,
    )


def _signal_in(error: BaseException) -> HandlerSignal | None:
    current: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if current is None or isinstance(current, HandlerSignal):
            return current
        current = current.__cause__
    return None


def _answered(result: object) -> UserReply:
    return Answered(to_text(normalize("answer", result)))


def _due_date(result: object) -> UserReply:
    if not isinstance(result, str | datetime | timedelta):
        raise TypeError(
            f"a due-date provider returns a text, a datetime or a timedelta, not {type(result).__name__}"
        )
    return DueDateGiven(result)


def _keys(result: object) -> UserReply:
    if isinstance(result, str) or not isinstance(result, Iterable):
        raise TypeError(f"a keys provider returns a list of keys, not {type(result).__name__}")
    return KeysGiven(tuple(_item(entry) for entry in result))


def _item(entry: object) -> CorrelationItem:
    if isinstance(entry, CorrelationItem):
        return entry
    text = to_text(normalize("correlation key", entry)) or ""
    return CorrelationItem(text, text)
