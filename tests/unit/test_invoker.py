"""Running user code: replies, failures, time-outs, cancellation."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from kikwiflow_worker.engine.effects import (
    Answered,
    AskAnswer,
    AskDueDate,
    CallHandler,
    DueDateGiven,
    FailureKind,
    HandlerReturned,
    Raised,
)
from kikwiflow_worker.handler import (
    EvaluationContext,
    ExecutionContext,
    Fatal,
    ProcessError,
    RetryLater,
    StepView,
    answer_provider,
    due_date_provider,
    find_spec,
    task_handler,
)
from kikwiflow_worker.model.variables import IncrementVariable, SetVariable
from kikwiflow_worker.operations.services import CancelReason, StepCancelledError
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.invoker import StepInvoker
from kikwiflow_worker.worker.registry import registry_of

VIEW = StepView(
    instance_id="i",
    business_key="b",
    business_value=None,
    tenant_id=None,
    definition_key="d",
    definition_version=1,
    node_id="N",
    node_name=None,
    attempt=1,
    idempotency_key="k",
)


@pytest.fixture
def runtimes() -> Iterator[list[HandlerRuntime]]:
    made: list[HandlerRuntime] = []
    yield made
    for runtime in made:
        runtime.close()


@pytest.fixture
def invoker_of(runtimes: list[HandlerRuntime]) -> Callable[..., StepInvoker]:
    def make(*functions: Callable[..., object]) -> StepInvoker:
        runtime = HandlerRuntime(registry_of(functions), threads=2)
        runtimes.append(runtime)
        return runtime.invoker()

    return make


def call(function: object, variables: dict[str, object] | None = None) -> CallHandler:
    spec = find_spec(function)
    assert spec is not None
    return CallHandler(spec.capability, VIEW, variables or {})  # type: ignore[arg-type]


async def test_changes_and_a_returned_mapping_become_the_reply(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    @task_handler("h")
    async def handler(ctx: ExecutionContext) -> dict[str, object]:
        ctx.increment("count")
        ctx.set("secret", "s", transient=True)
        return {"total": 7}

    reply = await invoker_of(handler).perform(call(handler))

    assert reply == HandlerReturned(
        (IncrementVariable("count", 1), SetVariable("total", 7)), {"secret": "s"}
    )


async def test_a_plain_function_runs_in_a_thread(invoker_of: Callable[..., StepInvoker]) -> None:
    @task_handler("h")
    def handler(ctx: ExecutionContext) -> None:
        ctx.set("thread", threading.current_thread().name)

    reply = await invoker_of(handler).perform(call(handler))

    assert isinstance(reply, HandlerReturned)
    assert isinstance(reply.changes[0], SetVariable)
    assert str(reply.changes[0].value).startswith("handler")


@pytest.mark.field_case("S-45")
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("broken"), FailureKind.TECHNICAL),
        (ProcessError("NO_MONEY"), FailureKind.BUSINESS),
        (RetryLater(timedelta(minutes=5)), FailureKind.RETRY_LATER),
        (Fatal("never"), FailureKind.FATAL),
        (SystemExit(3), FailureKind.TECHNICAL),
        (KeyboardInterrupt(), FailureKind.TECHNICAL),
        (MemoryError(), FailureKind.TECHNICAL),
        (TimeoutError("the bank did not answer"), FailureKind.TECHNICAL),
    ],
)
@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_handler_raises_is_classified(
    invoker_of: Callable[..., StepInvoker], error: BaseException, kind: FailureKind, is_async: bool
) -> None:
    @task_handler("h")
    async def coroutine(ctx: ExecutionContext) -> None:
        raise error

    @task_handler("h")
    def plain(ctx: ExecutionContext) -> None:
        raise error

    handler = coroutine if is_async else plain
    reply = await invoker_of(handler).perform(call(handler))

    assert isinstance(reply, Raised)
    assert reply.failure.kind is kind
    assert reply.failure.cause is error
    assert type(error).__name__ in reply.failure.stack_trace


async def test_a_signal_counts_as_the_cause_of_another_error(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    @task_handler("h")
    async def handler(ctx: ExecutionContext) -> None:
        try:
            raise ProcessError("NO_MONEY")
        except ProcessError as error:
            raise RuntimeError("payment failed") from error

    reply = await invoker_of(handler).perform(call(handler))

    assert isinstance(reply, Raised)
    assert (reply.failure.kind, reply.failure.code) == (FailureKind.BUSINESS, "NO_MONEY")


async def test_a_variable_that_cannot_be_stored_is_fatal_and_named(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    @task_handler("h")
    async def handler(ctx: ExecutionContext) -> None:
        ctx.set("tags", {"a", "b"})

    reply = await invoker_of(handler).perform(call(handler))

    assert isinstance(reply, Raised)
    assert reply.failure.kind is FailureKind.FATAL
    assert "'tags'" in reply.failure.message


async def test_a_wrong_return_value_is_a_failure(invoker_of: Callable[..., StepInvoker]) -> None:
    @task_handler("h")
    async def handler(ctx: ExecutionContext) -> object:
        return 5

    reply = await invoker_of(handler).perform(call(handler))

    assert isinstance(reply, Raised)
    assert "None or a mapping" in reply.failure.message


async def test_a_handler_out_of_time_fails_this_attempt(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    @task_handler("h", timeout_s=0.01)
    async def handler(ctx: ExecutionContext) -> None:
        await asyncio.Event().wait()

    reply = await invoker_of(handler).perform(call(handler))

    assert isinstance(reply, Raised)
    assert reply.failure.message == "the handler did not finish within 0.01 s"
    assert reply.failure.kind is FailureKind.TECHNICAL


async def test_a_running_coroutine_is_cancelled_from_outside(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    started = asyncio.Event()
    seen: list[ExecutionContext] = []

    @task_handler("h")
    async def handler(ctx: ExecutionContext) -> None:
        seen.append(ctx)
        started.set()
        await asyncio.Event().wait()

    invoker = invoker_of(handler)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_cancelled_reason(invoker, call(handler)))
        await started.wait()
        invoker.cancel(CancelReason.CLAIM_LOST)

    assert running.result() is CancelReason.CLAIM_LOST
    assert seen[0].is_cancelled


async def test_a_plain_function_is_told_that_it_is_cancelled(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    started, ended = threading.Event(), threading.Event()

    @task_handler("h")
    def handler(ctx: ExecutionContext) -> None:
        started.set()
        while not ctx.is_cancelled:
            ended.wait(0.001)
        ended.set()

    invoker = invoker_of(handler)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(_cancelled_reason(invoker, call(handler)))
        await asyncio.to_thread(started.wait, 5)
        invoker.cancel(CancelReason.STOPPING)

    assert running.result() is CancelReason.STOPPING
    assert await asyncio.to_thread(ended.wait, 5)


async def test_nothing_starts_after_a_cancellation(invoker_of: Callable[..., StepInvoker]) -> None:
    calls: list[str] = []

    @task_handler("h")
    async def handler(ctx: ExecutionContext) -> None:
        calls.append("ran")

    invoker = invoker_of(handler)
    invoker.cancel(CancelReason.STOPPING)

    assert await _cancelled_reason(invoker, call(handler)) is CancelReason.STOPPING
    assert calls == []


async def test_answers_are_given_as_text_and_null_stays_null(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    @answer_provider("yes")
    def yes(ctx: EvaluationContext) -> bool:
        return True

    @answer_provider("nothing")
    async def nothing(ctx: EvaluationContext) -> None:
        return None

    invoker = invoker_of(yes, nothing)
    capabilities = [spec.capability for spec in (find_spec(yes), find_spec(nothing)) if spec]

    replies = [
        await invoker.perform(AskAnswer(capability, VIEW, {})) for capability in capabilities
    ]

    assert replies == [Answered("true"), Answered(None)]


async def test_a_due_date_of_another_type_is_a_failure(
    invoker_of: Callable[..., StepInvoker],
) -> None:
    @due_date_provider("good")
    def good(ctx: EvaluationContext) -> timedelta:
        return timedelta(hours=1)

    @due_date_provider("bad")
    def bad(ctx: EvaluationContext) -> int:
        return 60

    invoker = invoker_of(good, bad)
    capabilities = [spec.capability for spec in (find_spec(good), find_spec(bad)) if spec]

    replies = [
        await invoker.perform(AskDueDate(capability, VIEW, {})) for capability in capabilities
    ]

    assert replies[0] == DueDateGiven(timedelta(hours=1))
    assert isinstance(replies[1], Raised)


async def _cancelled_reason(invoker: StepInvoker, effect: CallHandler) -> CancelReason:
    with pytest.raises(StepCancelledError) as cancelled:
        await invoker.perform(effect)
    return cancelled.value.reason
