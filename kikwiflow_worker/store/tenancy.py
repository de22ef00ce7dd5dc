"""One tenant's view of the ports: what belongs to another tenant is not there, and cannot be changed.

Each class narrows one port and says for every method of it how: there is no ``__getattr__``, and a test compares them with
the ports, so that a method that is added to a port cannot be forgotten here. What concerns all tenants is refused.

Looking first and changing afterwards is safe here, although others change the same rows meanwhile: an instance, and with
it each of its rows, never changes its tenant, and no id is used twice. What was found to be the tenant's own is remembered
for the request, so that nothing is looked up again when it is changed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, TypeVar

from kikwiflow_worker.errors import ClaimLostError, TenantBoundError
from kikwiflow_worker.model.definition import DefinitionFile, ProcessDefinition
from kikwiflow_worker.model.messages import Message
from kikwiflow_worker.model.runtime import Branch, Claim, ExternalTask, ProcessInstance
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.store.protocol import (
    DefinitionStore,
    Deployment,
    ReadStore,
    RuntimeStore,
    Startable,
)
from kikwiflow_worker.store.tenant_units import Subjects, subjects_of
from kikwiflow_worker.store.values import PLAIN_RETRY, GroupedUnit, GroupResult, HandOn, Resolution


class Owned(Protocol):
    """A row that belongs to a tenant, or to none."""

    @property
    def id(self) -> str:
        """Of the row."""
        ...

    @property
    def tenant_id(self) -> str | None:
        """The tenant."""
        ...


Row = TypeVar("Row", bound=Owned)


@dataclass(frozen=True, slots=True)
class Tenancy:
    """One tenant, and what is known to be its own; made for one request.

    Attributes:
        runtime: Narrowed to nobody, to look up whose something is.
        reads: The same.
        own: Ids of instances and tasks that are the tenant's.
    """

    tenant_id: str
    runtime: RuntimeStore
    reads: ReadStore
    own: set[str] = field(default_factory=set)

    def kept(self, row: Row | None) -> Row | None:
        """Return a row if it is the tenant's own, and remember that."""
        if row is None or row.tenant_id != self.tenant_id:
            return None
        self.own.add(row.id)
        return row

    def is_tenant(self, tenant_id: str | None) -> bool:
        """Return whether that is this tenant."""
        return tenant_id == self.tenant_id

    async def owns_instance(self, instance_id: str) -> bool:
        """Return whether a running or ended instance is the tenant's own."""
        return instance_id in self.own or self.kept(await self._instance(instance_id)) is not None

    async def owns_task(self, task_id: str) -> bool:
        """Return whether an executable or external task is the tenant's own."""
        return task_id in self.own or self.kept(await self._task(task_id)) is not None

    async def owns_incident(self, incident_id: str) -> bool:
        """Return whether an incident is the tenant's own."""
        return self.kept(await self.reads.find_incident(incident_id)) is not None

    async def is_foreign(self, subjects: Subjects) -> bool:
        """Return whether a unit changes anything of another tenant; what does not exist is nobody's."""
        rows: list[Owned | None] = []
        rows += [await self._instance(each) for each in subjects.instance_ids - self.own]
        rows += [await self._task(each) for each in subjects.task_ids - self.own]
        return any(row is not None and self.kept(row) is None for row in rows)

    async def _instance(self, instance_id: str) -> Owned | None:
        found = await self.runtime.find_instance(instance_id)
        return found or await self.runtime.find_ended_instance(instance_id)

    async def _task(self, task_id: str) -> Owned | None:
        found = await self.reads.find_task(task_id)
        return found or await self.runtime.find_external_task(task_id)


def refusal(what: str) -> TenantBoundError:
    """Return the error for what concerns all tenants."""
    return TenantBoundError(f"{what} concerns all tenants; only an identity without a tenant may")


@dataclass(frozen=True, slots=True)
class TenantRuntimeStore:
    """``RuntimeStore`` for one tenant."""

    _inner: RuntimeStore
    _tenancy: Tenancy

    def now(self) -> datetime:
        """Return the database's time, which is the same for all."""
        return self._inner.now()

    async def find_instance(self, instance_id: str) -> ProcessInstance | None:
        """Return a running instance of the tenant."""
        return self._tenancy.kept(await self._inner.find_instance(instance_id))

    async def find_ended_instance(self, instance_id: str) -> ProcessInstance | None:
        """Return an ended instance of the tenant."""
        return self._tenancy.kept(await self._inner.find_ended_instance(instance_id))

    async def find_started(self, key: str, *, tenant_id: str | None) -> str | None:
        """Return the instance of a start key of the tenant; another tenant's key is in use by nobody."""
        if not self._tenancy.is_tenant(tenant_id):
            return None
        return await self._inner.find_started(key, tenant_id=tenant_id)

    async def find_external_task(self, task_id: str) -> ExternalTask | None:
        """Return an open external task of the tenant."""
        return self._tenancy.kept(await self._inner.find_external_task(task_id))

    async def find_waiting(
        self, key: str, *, tenant_id: str | None, taken: frozenset[str]
    ) -> ExternalTask | None:
        """Return who waits for a key in the tenant; in another one nobody waits."""
        if not self._tenancy.is_tenant(tenant_id):
            return None
        found = await self._inner.find_waiting(key, tenant_id=tenant_id, taken=taken)
        return self._tenancy.kept(found)

    async def find_message(self, message_id: str, *, tenant_id: str | None) -> Message | None:
        """Return a message of the tenant."""
        if not self._tenancy.is_tenant(tenant_id):
            return None
        return await self._inner.find_message(message_id, tenant_id=tenant_id)

    async def find_children(self, children: Branch, *, limit: int) -> tuple[str, ...]:
        """Refuse: workers look for children, to cancel them."""
        raise refusal("looking for the children of a call activity")

    async def commit(self, unit: UnitOfWork) -> Committed:
        """Write a unit that changes only what is the tenant's own; anything else is not there to be changed.

        Raises:
            ClaimLostError: It changes what is not the tenant's.
            TenantBoundError: It inserts something for another tenant.
        """
        subjects = subjects_of(unit)
        if any(not self._tenancy.is_tenant(tenant_id) for tenant_id in subjects.tenant_ids):
            raise refusal("writing for another tenant")
        if await self._tenancy.is_foreign(subjects):
            raise ClaimLostError(None)
        return await self._inner.commit(unit)

    async def commit_group(
        self, units: Sequence[GroupedUnit], *, hand_on: HandOn | None
    ) -> tuple[GroupResult, ...]:
        """Refuse: workers commit in groups."""
        raise refusal("committing the steps of many instances")

    async def discard_task(self, claim: Claim) -> bool:
        """Remove a claimed task of the tenant whose instance has ended."""
        return await self._tenancy.owns_task(claim.task_id) and await self._inner.discard_task(
            claim
        )

    async def cancel_instance(self, instance_id: str, *, cancelled_by: str | None) -> bool:
        """Cancel an instance of the tenant."""
        return await self._tenancy.owns_instance(instance_id) and await self._inner.cancel_instance(
            instance_id, cancelled_by=cancelled_by
        )

    async def sweep_cancelled(self, instance_id: str) -> bool:
        """Carry out a cancellation of an instance of the tenant."""
        return await self._tenancy.owns_instance(instance_id) and await self._inner.sweep_cancelled(
            instance_id
        )

    async def suspend_instance(self, instance_id: str) -> bool:
        """Let an instance of the tenant rest."""
        return await self._tenancy.owns_instance(
            instance_id
        ) and await self._inner.suspend_instance(instance_id)

    async def resume_instance(self, instance_id: str) -> bool:
        """Let an instance of the tenant go on."""
        return await self._tenancy.owns_instance(instance_id) and await self._inner.resume_instance(
            instance_id
        )

    async def park_task(self, claim: Claim) -> bool:
        """Take a claimed task of the tenant out of the claims.

        Raises:
            ClaimLostError: It is not the tenant's.
        """
        if not await self._tenancy.owns_task(claim.task_id):
            raise ClaimLostError(None)
        return await self._inner.park_task(claim)

    async def retry_incident(
        self,
        incident_id: str,
        *,
        retries: int,
        resolved_by: str | None,
        resolution: Resolution = PLAIN_RETRY,
    ) -> bool:
        """Resolve an incident of the tenant."""
        return await self._tenancy.owns_incident(incident_id) and await self._inner.retry_incident(
            incident_id, retries=retries, resolved_by=resolved_by, resolution=resolution
        )

    async def override_task(
        self, task_id: str, *, retries: int | None, due_at: datetime | None, by: str | None
    ) -> bool:
        """Give a task of the tenant other attempts or another due time."""
        return await self._tenancy.owns_task(task_id) and await self._inner.override_task(
            task_id, retries=retries, due_at=due_at, by=by
        )

    async def forget_instance(self, instance_id: str) -> bool:
        """Remove an ended instance of the tenant from the history."""
        return await self._tenancy.owns_instance(instance_id) and await self._inner.forget_instance(
            instance_id
        )

    async def migrate_instance(
        self,
        instance_id: str,
        *,
        before_id: str,
        after: ProcessDefinition,
        nodes: frozenset[str],
    ) -> bool:
        """Let an instance of the tenant go on with another version."""
        return await self._tenancy.owns_instance(
            instance_id
        ) and await self._inner.migrate_instance(
            instance_id, before_id=before_id, after=after, nodes=nodes
        )

    async def assign_external_task(
        self, task_id: str, *, assignee: str | None, expected: str | None
    ) -> bool:
        """Change the assignee of an external task of the tenant."""
        return await self._tenancy.owns_task(task_id) and await self._inner.assign_external_task(
            task_id, assignee=assignee, expected=expected
        )


@dataclass(frozen=True, slots=True)
class TenantDefinitionStore:
    """``DefinitionStore`` for one tenant: all tenants share the definitions, so it can be read and not changed."""

    _inner: DefinitionStore

    async def put(self, file: DefinitionFile, *, activate: bool) -> Deployment:
        """Refuse: a new version changes what every tenant's instances start with."""
        raise refusal("deploying a definition")

    async def put_all(
        self, files: Sequence[DefinitionFile], *, activate: bool
    ) -> tuple[Deployment, ...]:
        """Refuse, as ``put``."""
        raise refusal("deploying definitions")

    async def find(self, definition_id: str) -> ProcessDefinition | None:
        """Return one version by its id."""
        return await self._inner.find(definition_id)

    async def find_by_key(
        self, key: str, *, version: int | None = None
    ) -> ProcessDefinition | None:
        """Return the given version, or the latest."""
        return await self._inner.find_by_key(key, version=version)

    async def suspend(self, key: str, *, suspended: bool) -> int:
        """Refuse: it would stop every tenant."""
        raise refusal("suspending or resuming a definition")

    async def find_to_start(self, key: str, *, version: int | None = None) -> Startable | None:
        """Return the given version, or the latest, and whether it must not be started."""
        return await self._inner.find_to_start(key, version=version)
