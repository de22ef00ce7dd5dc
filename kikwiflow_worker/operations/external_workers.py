"""What workers outside this package, in any language, do: fetch tasks by topic or node, keep them, and say what came of them.

A topic is the name of a task handler. A fetched task is claimed as by a worker of our own, and what is reported is taken
through the engine as what a handler returned or raised: retries, error handlers, incidents and guards are the same.
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from kikwiflow_worker.engine.effects import (
    Failure,
    FailureKind,
    HandlerReturned,
    Raised,
    UserCode,
    UserReply,
    fatal_failure,
)
from kikwiflow_worker.errors import (
    ClaimLostError,
    ConflictError,
    EncryptionError,
    KikwiflowError,
    LockLostError,
    NotFoundError,
    OperationError,
)
from kikwiflow_worker.model.capability import NO_CAPABILITIES, Capabilities
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.external_work import (
    EXTERNAL_WORKER_PREFIX,
    ReportKind,
    ReportOutcome,
    WorkReport,
)
from kikwiflow_worker.model.nodes import TOPIC, ExecutableTaskNode, ExternalTaskNode, FlowNode
from kikwiflow_worker.model.runtime import Claim, ClaimedTask, TopicNode
from kikwiflow_worker.model.texts import check_texts, storable
from kikwiflow_worker.model.unit_of_work import (
    Committed,
    FailTask,
    RecordReport,
    RescheduleTask,
    UnitOfWork,
)
from kikwiflow_worker.model.variables import SetVariable, check_readable, normalize_all
from kikwiflow_worker.operations.execution import (
    Outcome,
    OutcomeKind,
    count_step,
    finish_task,
    settle_first,
)
from kikwiflow_worker.operations.incidents import MAX_ATTEMPTS
from kikwiflow_worker.operations.instances import get_definition, too_many_races
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.operations.spans import sending
from kikwiflow_worker.store.external_work import MAX_NODES, MAX_TOPICS, Fetch

SHORTEST_LOCK = timedelta(seconds=1)
LONGEST_LOCK = timedelta(days=1)
LONGEST_DELAY = timedelta(days=365)
MAX_FETCHED = 100
"""Tasks of one fetch, at most."""
MAX_VERSIONS = 100
"""Of a definition, the newest, in which a node that is to be fetched is looked for."""

_RECORD_TIMEOUT_S = 1.0
"""After this a record is given up: what was fetched is locked already while its worker waits for the answer."""


def claim_of(task_id: str, *, actor: str, worker_id: str, epoch: int) -> Claim:
    """Return the claim that an external worker has: it is the actor's, under the name that the worker gives itself.

    Raises:
        OperationError: The name cannot be one.
    """
    check_texts(task_id=task_id, actor=actor, worker_id=worker_id)
    if not worker_id.strip() or "/" in worker_id:
        raise OperationError("the worker id is a text without '/', and not blank")
    return Claim(task_id, f"{EXTERNAL_WORKER_PREFIX}{actor}/{worker_id}", epoch)


async def fetch(
    services: Services,
    *,
    actor: str,
    worker_id: str,
    topics: Collection[str] = (),
    nodes: Collection[TopicNode] = (),
    lock: timedelta,
    limit: int,
) -> tuple[ClaimedTask, ...]:
    """Lock due tasks of ``topics`` and at ``nodes`` for ``lock``, at most ``limit``; none if nothing is due now.

    Args:
        worker_id: What the worker calls itself; two processes need two names.
        nodes: Of one that is none, or that has no topic, nothing is ever due: ``check_nodes`` says so.

    Raises:
        OperationError: A topic, the lock or the limit makes no sense.
    """
    holder = claim_of("", actor=actor, worker_id=worker_id, epoch=0).worker_id
    _check_sources(topics, nodes)
    _check_lock(lock)
    if not 1 <= limit <= MAX_FETCHED:
        raise OperationError(f"a fetch takes 1 to {MAX_FETCHED} tasks, not {limit}")
    wanted = Fetch(worker_id=holder, topics=frozenset(topics), nodes=frozenset(nodes), lock=lock)
    claimed = await services.external_work.fetch(wanted, limit=limit)
    for one in claimed:
        services.steps.claimed(is_rescued=bool(one.task.crash_count))
    todo = tuple([one for one in claimed if await _is_to_be_done(services, one)])
    await _record(services, wanted)
    return todo


async def check_nodes(services: Services, nodes: Collection[TopicNode]) -> None:
    """Refuse nodes of which nothing can be fetched in the latest version, nor in one of those before it.

    Instances may still run with an older version: a node that only such a one has can be fetched.

    Raises:
        DefinitionNotFoundError: No definition has the key.
        NotFoundError: None of the versions has the node.
        OperationError: The node has no topic.
    """
    for node in nodes:
        latest = await get_definition(services, node.definition_key, None)
        if not _has_topic(latest.flow_nodes.get(node.node_id)):
            await _check_older(services, node, latest)


async def _check_older(services: Services, node: TopicNode, latest: ProcessDefinition) -> None:
    newest = latest.flow_nodes.get(node.node_id)
    oldest_looked_at = max(0, latest.version - MAX_VERSIONS)
    for version in range(latest.version - 1, oldest_looked_at, -1):
        older = await services.definitions.find_by_key(node.definition_key, version=version)
        found = older.flow_nodes.get(node.node_id) if older else None
        if _has_topic(found):
            return
        newest = newest or found
    if newest is None:
        raise NotFoundError(
            f"definition {node.definition_key!r} has no node {node.node_id!r} in its {MAX_VERSIONS} newest versions"
        )
    raise OperationError(_no_topic(node, newest))


def _has_topic(node: FlowNode | None) -> bool:
    return isinstance(node, ExecutableTaskNode) and node.is_external


def _no_topic(node: TopicNode, found: FlowNode) -> str:
    """Return why nothing can be fetched at a node, and what to do."""
    named = f"node {node.node_id!r} of definition {node.definition_key!r}"
    if isinstance(found, ExecutableTaskNode):
        return f"{named} has no topic of its own; fetch the topic {found.handler_name!r}, or set {TOPIC} on the node"
    if isinstance(found, ExternalTaskNode):
        return f"{named} is for people; set {TOPIC} on it to let programs do it"
    return f"{named} is {found.type}; only tasks are fetched"


async def _record(services: Services, fetched: Fetch) -> None:
    """Let people see who fetches, if the database answers; nothing depends on it."""
    with suppress(KikwiflowError, TimeoutError):
        async with asyncio.timeout(_RECORD_TIMEOUT_S):
            await services.external_work.record_fetch(fetched)


async def _is_to_be_done(services: Services, claimed: ClaimedTask) -> bool:
    """Return whether a claimed task is for its worker; what needs none, or cannot be given to one, is decided here."""

    async def commit(unit: UnitOfWork) -> Committed:
        return await services.commit(unit, cause=claimed.task.traceparent)

    try:
        outcome = await settle_first(services, claimed, commit)
        if outcome is None and (reply := _without_worker(claimed)) is not None:
            outcome = await finish_task(services, _Told(reply), claimed, commit)
    except ClaimLostError:
        return False
    if outcome is not None:
        _count(services, claimed, outcome)
    return outcome is None


def _count(services: Services, claimed: ClaimedTask, outcome: Outcome) -> None:
    """Count a step that ended here, as a worker counts its own."""
    lasted = services.runtime.now() - claimed.claimed_at
    count_step(services.steps, claimed, outcome, max(0.0, lasted.total_seconds()))


def _without_worker(claimed: ClaimedTask) -> UserReply | None:
    """Return what is taken for the outcome of a step that no worker is to do; None if one is."""
    if claimed.task.is_skipped:
        return HandlerReturned()
    try:
        check_readable(claimed.instance.variables if claimed.instance else {})
    except EncryptionError as error:
        return Raised(fatal_failure(error))
    return None


async def complete(
    services: Services, claim: Claim, *, variables: Mapping[str, object]
) -> WorkReport:
    """Set ``variables`` and let the path go on; a repeat changes nothing and gets the answer of the first.

    Raises:
        LockLostError: The lock lapsed and somebody else has the task.
        NotFoundError: The task is gone: its instance was cancelled, or a boundary event ended it.
        ConflictError: Something else was reported before.
        VariableError: A variable cannot be stored; nothing was changed.
    """
    return await _report(services, claim, ReportKind.COMPLETED, _returned(variables))


async def throw_error(
    services: Services,
    claim: Claim,
    *,
    code: str | None,
    message: str,
    variables: Mapping[str, object],
) -> WorkReport:
    """Report an error that the process knows: the node's error handler takes over, with ``variables``, or an incident opens.

    Raises:
        LockLostError: As ``complete``, and so all others.
    """
    check_texts(error_code=code)
    changes = _returned(variables).changes
    failure = Failure(
        kind=FailureKind.BUSINESS, error_type="BusinessError", message=storable(message), code=code
    )
    return await _report(services, claim, ReportKind.BUSINESS_ERROR, Raised(failure, changes))


async def fail(
    services: Services,
    claim: Claim,
    *,
    message: str,
    details: str,
    retries: int | None = None,
    delay: timedelta | None = None,
) -> WorkReport:
    """Report a failure: the task waits for another attempt by its node's retry policy, or for a person.

    Args:
        details: A stack trace or the like, for the incident.
        retries: Attempts that are left after this one, instead of the policy's count; 0 opens an incident.
        delay: Until the next attempt, instead of the policy's.

    Raises:
        OperationError: ``retries`` or ``delay`` makes no sense.
        LockLostError: As ``complete``, and so all others.
    """
    if retries is not None and not 0 <= retries < MAX_ATTEMPTS:
        raise OperationError(f"a task has 0 to {MAX_ATTEMPTS - 1:,} attempts left, not {retries}")
    if delay is not None and not timedelta(0) <= delay <= LONGEST_DELAY:
        raise OperationError("the delay until the next attempt is 0 seconds to 365 days")
    failure = Failure(
        kind=FailureKind.TECHNICAL,
        error_type="ExternalWorkerError",
        message=storable(message),
        stack_trace=storable(details),
    )
    return await _report(
        services, claim, ReportKind.FAILED, Raised(failure), retries=retries, delay=delay
    )


async def extend(services: Services, claim: Claim, *, lock: timedelta) -> datetime:
    """Let the lock end ``lock`` from now, also one that has lapsed and that nobody else has taken; return the end.

    Raises:
        OperationError: The lock makes no sense.
        LockLostError: Somebody else has the task, or nobody has.
        NotFoundError: The task is gone.
    """
    _check_lock(lock)
    ends = await services.external_work.extend(claim, lock=lock)
    if ends is None:
        raise await _lost(services, claim)
    return ends


async def unlock(services: Services, claim: Claim) -> None:
    """Give the task back undone: it is due at once for everybody, and no attempt is used.

    Raises:
        LockLostError: Somebody else has the task, or nobody has.
        NotFoundError: The task is gone.
    """
    if not await services.external_work.unlock(claim):
        raise await _lost(services, claim)


async def _report(
    services: Services,
    claim: Claim,
    kind: ReportKind,
    reply: UserReply,
    *,
    retries: int | None = None,
    delay: timedelta | None = None,
) -> WorkReport:
    held = await services.external_work.find_held(claim)
    if held is None:
        return await _earlier(services, claim, kind)
    if retries is not None:
        held = replace(held, task=replace(held.task, retries_left=retries + 1))
    commit = _ReportingCommit(services, held, kind, delay)
    with sending(services, "report", held.task):
        outcome: Outcome = await finish_task(services, _Told(reply), held, commit)
    if outcome.kind is OutcomeKind.OVERTAKEN:
        raise too_many_races(f"report about task {claim.task_id}")
    if commit.report is None:
        return await _earlier(services, claim, kind)
    _count(services, held, outcome)
    return commit.report


async def _earlier(services: Services, claim: Claim, kind: ReportKind) -> WorkReport:
    """Return what was reported about a claim that is not held any more, if that is the same as now."""
    report = await services.external_work.find_report(claim)
    if report is None:
        raise await _lost(services, claim)
    if report.kind is not kind:
        raise ConflictError(
            f"task {claim.task_id} was reported as {report.kind} at {report.reported_at.isoformat()} already"
        )
    return report


async def _lost(services: Services, claim: Claim) -> KikwiflowError:
    if await services.reads.find_task(claim.task_id) is None:
        return NotFoundError(
            f"no task has the id {claim.task_id}; it is done, its instance was cancelled, or the id is wrong"
        )
    return LockLostError(
        f"the lock of task {claim.task_id} is lost; drop what was done for it, whoever fetches it does it anew"
    )


class _Told:
    """An invoker that knows what the user code of the head node came to, and can run nothing behind it."""

    def __init__(self, reply: UserReply) -> None:
        self._reply = reply

    @property
    def capabilities(self) -> Capabilities:
        """None: every step behind the reported one is left to workers."""
        return NO_CAPABILITIES

    async def perform(self, effect: UserCode) -> UserReply:  # noqa: ARG002 - there is one only
        """Return the reply."""
        return self._reply


class _ReportingCommit:
    """Commits what came of a report together with the record of it.

    Attributes:
        report: What was committed; None if nothing was.
    """

    def __init__(
        self, services: Services, held: ClaimedTask, kind: ReportKind, delay: timedelta | None
    ) -> None:
        self.report: WorkReport | None = None
        self._services = services
        self._held = held
        self._kind = kind
        self._delay = delay

    async def __call__(self, unit: UnitOfWork) -> Committed:
        """Commit ``unit``."""
        task, now = self._held.task, self._services.runtime.now()
        decision, *others = unit.guards
        if isinstance(decision, RescheduleTask) and self._delay is not None:
            decision = replace(decision, due_at=now + self._delay)
        report = WorkReport(
            claim=self._held.claim,
            kind=self._kind,
            outcome=_OUTCOMES.get(type(decision), ReportOutcome.COMPLETED),
            instance_id=task.instance_id,
            node_id=task.node_id,
            tenant_id=task.tenant_id,
            reported_at=now,
        )
        changes = (*unit.changes, RecordReport(report))
        committed = await self._services.commit(
            UnitOfWork((decision, *others), changes), cause=task.traceparent
        )
        self.report = report
        return committed


_OUTCOMES: Mapping[type, ReportOutcome] = {
    RescheduleTask: ReportOutcome.RETRY_SCHEDULED,
    FailTask: ReportOutcome.INCIDENT_OPENED,
}


def _returned(variables: Mapping[str, object]) -> HandlerReturned:
    values = normalize_all(variables)
    return HandlerReturned(tuple(SetVariable(name, value) for name, value in values.items()))


def _check_sources(topics: Collection[str], nodes: Collection[TopicNode]) -> None:
    if not topics and not nodes:
        raise OperationError("a fetch names a topic or a node")
    for named, most, what in ((topics, MAX_TOPICS, "topics"), (nodes, MAX_NODES, "nodes")):
        if len(named) > most:
            raise OperationError(f"a fetch names at most {most} {what}, not {len(named)}")
    for node in nodes:
        check_texts(definition_key=node.definition_key, node_id=node.node_id)
    for topic in topics:
        check_texts(topic=topic)
        if not topic.strip() or ":" in topic:
            raise OperationError(f"{topic!r} is no topic: that is the name of a task handler")


def _check_lock(lock: timedelta) -> None:
    if not SHORTEST_LOCK <= lock <= LONGEST_LOCK:
        raise OperationError("a lock lasts 1 second to 1 day")
