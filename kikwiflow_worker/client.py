"""The Python API: deploy, start, complete, look and wait, from any asyncio program.

    async with Kikwiflow.connect("mongodb://db/?replicaSet=rs0") as kikwiflow:
        await kikwiflow.deploy(Path("order.kikwi"))
        instance = await kikwiflow.start("order", "ORDER-1", variables={"amount": 120})
        ended = await kikwiflow.wait_for_end(instance.id, timeout_s=30)

It needs no handlers: what needs one is left to the workers. Given handlers, the same calls run them inline, in the
caller's process, as far as the definition's transaction boundaries allow.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from uuid import uuid4

from kikwiflow_worker import __version__
from kikwiflow_worker.clock import Clock, SystemClock
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.errors import DefinitionError
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.runtime import ExecutableTask, ExternalTask, Incident, ProcessInstance
from kikwiflow_worker.operations import (
    correlation,
    deployment,
    external_tasks,
    incidents,
    instances,
    migration,
    waiting,
)
from kikwiflow_worker.operations import variables as variable_changes
from kikwiflow_worker.operations.correlation import Correlation, CorrelationRequest
from kikwiflow_worker.operations.migration import MigrationVerdict
from kikwiflow_worker.operations.services import Invoker, Services
from kikwiflow_worker.store.mongo.store import MongoStore, StoreOptions
from kikwiflow_worker.store.protocol import Deployment, ReadStore
from kikwiflow_worker.store.views import (
    ExternalTaskQuery,
    IncidentQuery,
    InstanceQuery,
    Page,
    TaskQuery,
)
from kikwiflow_worker.tracing.export import TraceExport, tracing_to
from kikwiflow_worker.tracing.protocol import NO_TRACING, Tracing
from kikwiflow_worker.worker.handlers import HandlerRuntime
from kikwiflow_worker.worker.registry import registry_of

Handlers = Iterable[ModuleType | Callable[..., object]]


class Kikwiflow:
    """A client of one database. Use it on one event loop; it may be used by many tasks at once.

    Args:
        store: The database; it must be prepared, and is closed by whoever opened it.
        handlers: Modules or decorated functions to run inline; none by default.
    """

    def __init__(
        self,
        store: MongoStore,
        *,
        handlers: Handlers = (),
        retry_defaults: RetryDefaults | None = None,
        clock: Clock | None = None,
        tracing: Tracing = NO_TRACING,
    ) -> None:
        self.services = Services.over(
            store,
            new_id=lambda: str(uuid4()),
            retry_defaults=retry_defaults or RetryDefaults(),
            event_level=store.options.outbox.level,
            tracing=tracing,
        )
        self.access = store.access
        self._clock = clock or SystemClock()
        self._handlers = HandlerRuntime(registry_of(handlers), threads=8)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        uri: str,
        *,
        database: str = "kikwiflow",
        handlers: Handlers = (),
        options: StoreOptions | None = None,
        retry_defaults: RetryDefaults | None = None,
        traces: TraceExport = TraceExport.OFF,
    ) -> AsyncIterator["Kikwiflow"]:
        """Connect to a database, prepare it, and close the connection at the end of the block.

        Args:
            traces: Where OpenTelemetry spans go; ``TraceExport.PROVIDER`` in a program that has set up a provider itself.

        Raises:
            StoreUnavailableError: It does not answer within a few seconds.
            StoreRefusedError: It refuses the credentials, or a certificate is not accepted.
            ConfigurationError: The URI cannot be used, or the server has no transactions.
        """
        clock = SystemClock()
        with tracing_to(traces, service="kikwiflow-client", version=__version__) as tracing:
            store = MongoStore.open(uri, database, clock=clock, options=options)
            client: Kikwiflow | None = None
            try:
                await store.prepare()
                client = cls(
                    store,
                    handlers=handlers,
                    retry_defaults=retry_defaults,
                    clock=clock,
                    tracing=tracing,
                )
                yield client
            finally:
                if client is not None:
                    client.close()
                await store.close()

    @property
    def reads(self) -> ReadStore:
        """Views for people: lists, counts, workers."""
        return self.services.reads

    def new_invoker(self) -> Invoker:
        """Return what runs user code for one operation: the handlers this client was given."""
        return self._handlers.invoker()

    def close(self) -> None:
        """Let the threads of inline handlers end. Closes no connection."""
        self._handlers.close()

    async def deploy(
        self,
        source: Path | str | bytes,
        *,
        name: str | None = None,
        activate: bool = False,
        check_handlers: bool = False,
    ) -> Deployment:
        """Deploy a definition: a file, or its JSON text.

        Args:
            name: What messages call it; the file's path by default.
            activate: Make content that an older version has the latest again.
            check_handlers: Refuse a definition that needs a handler which this client does not have.

        Raises:
            InvalidDefinitionError: It cannot be deployed; lists all problems.
            DefinitionError: The file cannot be read.
        """
        if isinstance(source, Path):
            name, source = name or str(source), _read(source)
        checked = deployment.check_definition(
            source,
            name=name or "definition",
            capabilities=self._handlers.registry.capabilities if check_handlers else None,
        )
        return await deployment.deploy(self.services, checked, activate=activate)

    async def get_definition(self, key: str, *, version: int | None = None) -> ProcessDefinition:
        """Return the latest version of a definition, or the one given.

        Raises:
            DefinitionNotFoundError: There is none.
        """
        return await instances.get_definition(self.services, key, version)

    async def start(  # noqa: PLR0913 - each is one property of the new instance, all by keyword
        self,
        key: str,
        business_key: str,
        *,
        variables: Mapping[str, object] | None = None,
        version: int | None = None,
        business_value: Decimal | None = None,
        tenant_id: str | None = None,
        origin: str | None = None,
        started_by: str | None = None,
        idempotency_key: str | None = None,
        priority: int = 5,
    ) -> ProcessInstance:
        """Start an instance and return it as it came to rest, or as it ended.

        Args:
            business_key: What it is about, in your own words; not unique.
            idempotency_key: A second start with the same one, in the same tenant, returns the first instance.
            priority: 0 (last) to 9 (first).

        Raises:
            DefinitionNotFoundError: No definition has this key.
            VariableError: A variable cannot be stored; it is named.
            StepFailedError: A handler that ran inline failed; nothing was stored.
        """
        request = instances.StartRequest(
            key=key,
            business_key=business_key,
            variables=variables or {},
            version=version,
            business_value=business_value,
            tenant_id=tenant_id,
            origin=origin,
            started_by=started_by,
            idempotency_key=idempotency_key,
            priority=priority,
        )
        return await instances.start(self.services, self.new_invoker(), request)

    async def get_instance(self, instance_id: str) -> ProcessInstance:
        """Return a running or ended instance.

        Raises:
            NotFoundError: There is none.
        """
        return await instances.get_instance(self.services, instance_id)

    async def list_instances(
        self, query: InstanceQuery | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ProcessInstance]:
        """Return a page of instances, newest first."""
        return await self.reads.list_instances(query or InstanceQuery(), limit=limit, cursor=cursor)

    async def wait_for_end(self, instance_id: str, *, timeout_s: float) -> ProcessInstance:
        """Wait until an instance has ended; return it with its last variables.

        Raises:
            OperationError: It has not ended within ``timeout_s`` seconds; the message says where it rests.
            NotFoundError: There is none.
        """
        return await waiting.wait_for_end(
            self.services, self._clock, instance_id, timeout_s=timeout_s
        )

    async def set_variables(
        self, instance_id: str, values: Mapping[str, object], *, actor: str | None = None
    ) -> ProcessInstance:
        """Set variables of a running instance; return it afterwards.

        Raises:
            NotFoundError: It is not running.
            VariableError: A value cannot be stored; nothing was changed.
        """
        return await variable_changes.set_variables(self.services, instance_id, values, actor=actor)

    async def unset_variables(
        self, instance_id: str, *names: str, actor: str | None = None
    ) -> ProcessInstance:
        """Remove variables of a running instance; return it afterwards.

        Raises:
            NotFoundError: It is not running.
        """
        return await variable_changes.unset_variables(
            self.services, instance_id, names, actor=actor
        )

    async def cancel(self, instance_id: str, *, cancelled_by: str | None = None) -> None:
        """Cancel a running instance.

        Raises:
            NotFoundError: There is none.
            ConflictError: It has ended already.
        """
        await instances.cancel(self.services, instance_id, cancelled_by=cancelled_by)

    async def delete(self, instance_id: str, *, deleted_by: str | None = None) -> None:
        """Remove an instance and its record; a running one is cancelled first.

        Raises:
            NotFoundError: There is none.
        """
        await instances.delete(self.services, instance_id, deleted_by=deleted_by)

    async def migrate(
        self, instance_id: str, *, version: int | None = None, dry_run: bool = False
    ) -> MigrationVerdict:
        """Move a running instance to another version of its key, the latest by default; or only say whether it can be.

        Raises:
            NotFoundError: There is none.
            DefinitionNotFoundError: No such version.
            ConflictError: It has ended, or it was changed meanwhile.
            DefinitionError: It runs with that version already.
        """
        return await migration.migrate(self.services, instance_id, version=version, dry_run=dry_run)

    def migrate_all(
        self, key: str, *, version: int | None = None, dry_run: bool = False
    ) -> AsyncIterator[MigrationVerdict]:
        """Move all running instances of a definition to one version, as ``migrate`` does; yield a verdict for each.

        Raises:
            DefinitionNotFoundError: No such definition or version; raised by the first step.
        """
        return migration.migrate_all(self.services, key, version=version, dry_run=dry_run)

    async def suspend_definition(self, key: str) -> int:
        """Let no instance of a definition start, and all that run rest; return how many that were.

        Raises:
            DefinitionNotFoundError: There is none.
        """
        return await instances.change_definition(self.services, key, suspended=True)

    async def resume_definition(self, key: str) -> int:
        """Let a suspended definition and its instances go on; return how many instances that were.

        Raises:
            DefinitionNotFoundError: There is none.
        """
        return await instances.change_definition(self.services, key, suspended=False)

    async def suspend(self, instance_id: str) -> None:
        """Let a running instance rest where it is: steps under way are finished, none begins.

        Raises:
            NotFoundError: It is not running.
            ConflictError: It is suspended already.
        """
        await instances.suspend(self.services, instance_id)

    async def resume(self, instance_id: str) -> None:
        """Let a suspended instance go on.

        Raises:
            NotFoundError: It is not running.
            ConflictError: It is not suspended.
        """
        await instances.resume(self.services, instance_id)

    async def list_tasks(
        self, query: TaskQuery | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExecutableTask]:
        """Return a page of executable tasks, oldest first."""
        return await self.reads.list_tasks(query or TaskQuery(), limit=limit, cursor=cursor)

    async def override_task(
        self,
        task_id: str,
        *,
        retries: int | None = None,
        due_at: datetime | None = None,
        by: str | None = None,
    ) -> ExecutableTask:
        """Give a task other attempts or another due time; one that waits for a person waits for a worker again.

        Raises:
            NotFoundError: There is none.
            ConflictError: It runs now, or it waits for branches.
            OperationError: Nothing is to be changed, or a value makes no sense.
        """
        return await incidents.override_task(
            self.services, task_id, retries=retries, due_at=due_at, by=by
        )

    async def list_external_tasks(
        self, query: ExternalTaskQuery | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[ExternalTask]:
        """Return a page of open external tasks, oldest first."""
        return await self.reads.list_external_tasks(
            query or ExternalTaskQuery(), limit=limit, cursor=cursor
        )

    async def claim(self, task_id: str, *, assignee: str) -> ExternalTask:
        """Make ``assignee`` the one who works on an external task.

        Raises:
            ConflictError: Somebody else has it.
            NotFoundError: It is not open.
        """
        return await external_tasks.claim(self.services, task_id, assignee=assignee)

    async def unclaim(self, task_id: str, *, assignee: str | None = None) -> ExternalTask:
        """Give an external task back; with ``assignee``, only if it is that one's.

        Raises:
            ConflictError: Somebody else has it.
            NotFoundError: It is not open.
        """
        return await external_tasks.unclaim(self.services, task_id, assignee=assignee)

    async def complete(
        self,
        task_id: str,
        variables: Mapping[str, object] | None = None,
        *,
        completed_by: str | None = None,
    ) -> ProcessInstance:
        """Complete an external task, set ``variables``, and return the instance as it came to rest.

        Raises:
            ConflictError: It is completed already.
            NotFoundError: There is none.
            VariableError: A variable cannot be stored; nothing was changed.
            StepFailedError: A handler that ran inline failed; the task stays open.
        """
        return await external_tasks.complete(
            self.services,
            self.new_invoker(),
            task_id,
            variables=variables or {},
            completed_by=completed_by,
        )

    async def correlate(
        self,
        key: str,
        variables: Mapping[str, object] | None = None,
        *,
        tenant_id: str | None = None,
        actor: str | None = None,
        message_id: str | None = None,
        keep_for: timedelta | None = None,
    ) -> Correlation:
        """Give a message to the instance that has waited longest for its key, and let it go on.

        Args:
            message_id: The sender's own; a second message with it, in the same tenant, changes nothing.
            keep_for: How long to keep the message if nobody waits for its key yet; None refuses it then.

        Raises:
            NotFoundError: Nobody waits for the key in this tenant, and the message is not to be kept.
            ConflictError: The instance is suspended.
            VariableError: A variable cannot be stored; nothing was changed.
            StepFailedError: A handler that ran inline failed; the key still waits.
        """
        request = CorrelationRequest(
            key=key,
            variables=variables or {},
            tenant_id=tenant_id,
            actor=actor,
            message_id=message_id,
            keep_for=keep_for,
        )
        return await correlation.correlate(self.services, self.new_invoker(), request)

    async def list_incidents(
        self, query: IncidentQuery | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> Page[Incident]:
        """Return a page of incidents, open ones by default, newest first."""
        return await self.reads.list_incidents(query or IncidentQuery(), limit=limit, cursor=cursor)

    async def get_incident(self, incident_id: str) -> Incident:
        """Return one incident.

        Raises:
            NotFoundError: There is none.
        """
        return await incidents.get_incident(self.services, incident_id)

    async def retry_incident(
        self,
        incident_id: str,
        *,
        variables: Mapping[str, object] | None = None,
        skip: bool = False,
        resolved_by: str | None = None,
    ) -> Incident:
        """Let the failed task go on, due now and with its attempts back, and resolve the incident.

        Args:
            variables: Set before, in the same transaction.
            skip: Do not run its handler: the path goes on as if it had run.

        Raises:
            NotFoundError: There is none.
            ConflictError: It is not open, or there is no handler to skip.
            VariableError: A variable cannot be stored; nothing was changed.
        """
        return await incidents.resolve(
            self.services,
            incident_id,
            variables=variables or {},
            skip=skip,
            resolved_by=resolved_by,
        )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DefinitionError(f"{path} cannot be read: {error.strerror}") from error
