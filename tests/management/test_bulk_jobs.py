"""Bulk jobs over HTTP, carried out by a worker, on the real database."""

from datetime import timedelta

import pytest

from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.model.bulk import BulkAction, BulkCounts, BulkFilter, BulkJob, BulkStatus
from kikwiflow_worker.model.capability import NO_CAPABILITIES
from kikwiflow_worker.model.runtime import ClaimedTask, IncidentStatus, InstanceStatus
from kikwiflow_worker.operations import bulk, bulk_steps
from kikwiflow_worker.operations.bulk_items import Ending, Result, do_item
from kikwiflow_worker.operations.execution import OutcomeKind, execute_task
from kikwiflow_worker.operations.services import Services
from tests.support.definitions import Json, a_node, a_start, an_end
from tests.support.management import Managed
from tests.support.stores import lapse

pytestmark = pytest.mark.mongo


async def create(managed: Managed, action: str, **filters: object) -> Json:
    body: Json = {"action": action, "filter": filters}
    response = await managed.api.post("/bulk-jobs", json=body)
    assert response.status_code == 201, response.text
    job: Json = response.json()
    return job


async def confirm(managed: Managed, job: Json) -> None:
    response = await managed.api.post(f"/bulk-jobs/{job['id']}/confirm")
    assert response.status_code == 200, response.text


async def look(managed: Managed, job: Json) -> Json:
    found: Json = (await managed.api.get(f"/bulk-jobs/{job['id']}")).json()
    return found


async def run(managed: Managed, job: Json) -> Json:
    """Confirm a job and let a worker do what is due; return it as it is then."""
    await confirm(managed, job)
    await managed.work()
    return await look(managed, job)


def counts(job: Json) -> tuple[object, ...]:
    return job["status"], job["done"], job["skipped"], job["failed"]


async def step(managed: Managed, services: Services | None = None) -> ClaimedTask:
    """Claim the carrier of the only job, and carry out one step of it."""
    (claimed,) = await managed.store.queue.claim_due(
        worker_id="worker-1", lock=timedelta(seconds=60), capabilities=NO_CAPABILITIES, limit=1
    )
    used = services or managed.services
    invoker = managed.kikwiflow.new_invoker()
    outcome = await execute_task(used, invoker, claimed, managed.store.runtime.commit)
    assert outcome.kind is OutcomeKind.COMPLETED
    return claimed


async def waiting(managed: Managed, count: int, **fields: object) -> list[str]:
    """Start instances of a process that waits for a person."""
    if not await managed.kikwiflow.reads.list_definitions(key="waits"):
        await managed.deploy(
            a_start("WAIT"), a_node("WAIT", "EXTERNAL_TASK", "END"), an_end(), key="waits"
        )
    started = [
        await managed.kikwiflow.start("waits", f"W-{number}", **fields)  # type: ignore[arg-type]
        for number in range(count)
    ]
    return [instance.id for instance in started]


async def status_of(managed: Managed, instance_id: str) -> InstanceStatus:
    return (await managed.kikwiflow.get_instance(instance_id)).status


@pytest.mark.field_case("S-85")
async def test_a_job_is_previewed_and_changes_nothing_before_it_is_confirmed(
    managed: Managed,
) -> None:
    for number in range(3):
        await managed.a_failed_parcel(f"P-{number}")

    job = await create(managed, "RETRY_INCIDENTS", processDefinitionKey="parcel")

    assert (job["matched"], job["isCapped"], job["status"]) == (3, False, "PREVIEWED")
    await managed.work()
    assert counts(await look(managed, job)) == ("PREVIEWED", 0, 0, 0)
    assert managed.data.incidents.count_documents({"status": IncidentStatus.OPEN.value}) == 3


@pytest.mark.field_case("S-47")
async def test_incidents_are_retried_by_filter_with_exact_counts(managed: Managed) -> None:
    incidents = [await managed.a_failed_parcel(f"P-{number}") for number in range(3)]
    for incident in incidents[:2]:
        await managed.kikwiflow.set_variables(incident.instance_id, {"broken": False})
    job = await create(managed, "RETRY_INCIDENTS", processDefinitionKey="parcel")
    later = await managed.a_failed_parcel("LATER")

    done = await run(managed, job)

    assert counts(done) == ("DONE", 3, 0, 0)
    rows = {row["_id"]: row for row in managed.data.incidents.find()}
    by = f"{job['createdBy']} (bulk job {job['id']})"
    assert {rows[incident.id]["resolvedBy"] for incident in incidents} == {by}
    assert rows[later.id]["status"] == IncidentStatus.OPEN.value, "it began after the job"
    # Two go on, and one fails anew with its attempts back.
    assert managed.data.external_tasks.count_documents({"taskDefinitionId": "APPROVE"}) == 2
    anew = set(rows) - {later.id, *(incident.id for incident in incidents)}
    assert [rows[incident_id]["status"] for incident_id in anew] == [IncidentStatus.OPEN.value]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"taskDefinitionId": "WEIGH"}, 1),
        ({"taskDefinitionId": "APPROVE"}, 0),
        ({"incidentType": "FAILED_JOB"}, 1),
        ({"incidentType": "WORKER_LOST"}, 0),
        ({"processDefinitionKey": "parcel", "taskDefinitionId": "WEIGH"}, 1),
    ],
)
async def test_incidents_are_chosen_by_filter(managed: Managed, filters: Json, found: int) -> None:
    incident = await managed.a_failed_parcel()

    assert (await create(managed, "RETRY_INCIDENTS", **filters))["matched"] == found
    of_instance = await create(managed, "RETRY_INCIDENTS", processInstanceId=incident.instance_id)
    assert of_instance["matched"] == 1
    assert counts(await run(managed, of_instance)) == ("DONE", 1, 0, 0)


async def test_instances_are_suspended_resumed_and_cancelled(managed: Managed) -> None:
    ids = await waiting(managed, 3)
    other = await managed.a_waiting_parcel()

    for action, status in (
        ("SUSPEND", InstanceStatus.SUSPENDED),
        ("RESUME", InstanceStatus.ACTIVE),
        ("CANCEL", InstanceStatus.CANCELLED),
    ):
        job = await create(managed, action, processDefinitionKey="waits")
        assert job["matched"] == 3
        assert counts(await run(managed, job)) == ("DONE", 3, 0, 0), action
        assert {await status_of(managed, instance_id) for instance_id in ids} == {status}
    assert await status_of(managed, other.id) is InstanceStatus.ACTIVE
    (record,) = {row["cancelledBy"] for row in managed.data.process_history.find()}
    assert record == f"{job['createdBy']} (bulk job {job['id']})"


async def test_instances_are_chosen_by_business_key_and_node(managed: Managed) -> None:
    await waiting(managed, 3)

    by_key = await create(managed, "CANCEL", businessKey="W-1")
    at_node = await create(managed, "CANCEL", taskDefinitionId="WAIT")

    assert (by_key["matched"], at_node["matched"]) == (1, 3)
    assert counts(await run(managed, by_key)) == ("DONE", 1, 0, 0)
    assert counts(await run(managed, at_node)) == ("DONE", 2, 0, 0)


async def test_instances_are_migrated_or_it_is_said_why_not(managed: Managed) -> None:
    await waiting(managed, 2)
    await managed.deploy(
        a_start("WAIT"), a_node("WAIT", "EXTERNAL_TASK", "END", name="2"), an_end(), key="waits"
    )
    await waiting(managed, 1)
    job = await create(managed, "MIGRATE", processDefinitionKey="waits")
    assert (job["matched"], job["targetVersion"]) == (2, 2)
    assert counts(await run(managed, job)) == ("DONE", 2, 0, 0)

    await managed.deploy(
        a_start("ELSE"), a_node("ELSE", "EXTERNAL_TASK", "END"), an_end(), key="waits"
    )
    refused = await run(managed, await create(managed, "MIGRATE", processDefinitionKey="waits"))

    assert counts(refused) == ("DONE", 0, 0, 3)
    messages = {reason["message"] for reason in refused["reasons"]}  # type: ignore[attr-defined]
    assert messages == {"it rests at WAIT, which version 3 does not have"}
    versions = {row["processDefinitionVersion"] for row in managed.data.process_instances.find()}
    assert versions == {2}


async def test_many_items_are_done_in_steps(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_steps, "CHUNK", 3)
    await waiting(managed, 8)
    job = await create(managed, "CANCEL", processDefinitionKey="waits")

    assert counts(await run(managed, job)) == ("DONE", 8, 0, 0)
    assert managed.data.process_instances.count_documents({}) == 0


async def test_what_ended_meanwhile_is_skipped_with_its_reason(managed: Managed) -> None:
    ids = await waiting(managed, 2)
    job = await create(managed, "SUSPEND", processDefinitionKey="waits")
    await confirm(managed, job)
    await step(managed)
    await managed.kikwiflow.cancel(ids[0])

    await managed.work()

    found = await look(managed, job)
    assert counts(found) == ("DONE", 1, 1, 0)
    (reason,) = found["reasons"]  # type: ignore[misc]
    assert reason["itemId"] == ids[0]


@pytest.mark.parametrize("action", ["RETRY_INCIDENTS", "CANCEL", "SUSPEND", "RESUME"])
async def test_a_worker_that_dies_in_a_step_neither_repeats_nor_miscounts(
    managed: Managed, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker does two of three items and dies before it can count them."""
    for number in range(3):
        incident = await managed.a_failed_parcel(f"P-{number}")
        if action == "RESUME":
            await managed.kikwiflow.suspend(incident.instance_id)
    job = await create(managed, action, processDefinitionKey="parcel")
    await confirm(managed, job)
    await step(managed)
    done: list[str] = []

    async def dying(services: Services, of: BulkJob, item_id: str) -> Result:
        if len(done) == 2:
            raise StoreUnavailableError("the worker dies")
        done.append(item_id)
        return await do_item(services, of, item_id)

    with monkeypatch.context() as patch:
        patch.setattr(bulk_steps, "do_item", dying)
        with pytest.raises(StoreUnavailableError):
            await step(managed)
    (carrier,) = managed.data.executable_tasks.find({"type": "BULK_JOB"})
    assert counts(await look(managed, job)) == ("RUNNING", 0, 0, 0)
    lapse(managed.data, carrier["_id"])

    await managed.work()

    assert counts(await look(managed, job)) == ("DONE", 3, 0, 0)


async def test_a_worker_that_has_lost_the_job_counts_nothing(managed: Managed) -> None:
    await waiting(managed, 2)
    job = await create(managed, "CANCEL", processDefinitionKey="waits")
    await confirm(managed, job)
    await step(managed)
    (slow,) = await managed.store.queue.claim_due(
        worker_id="slow", lock=timedelta(seconds=60), capabilities=NO_CAPABILITIES, limit=1
    )
    lapse(managed.data, slow.task.id)
    await managed.work()

    late = await execute_task(
        managed.services, managed.kikwiflow.new_invoker(), slow, managed.store.runtime.commit
    )

    assert late.kind is OutcomeKind.CLAIM_LOST
    assert counts(await look(managed, job)) == ("DONE", 2, 0, 0)


async def test_a_cancelled_job_ends_after_the_items_that_are_being_done(
    managed: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_steps, "CHUNK", 2)
    await waiting(managed, 6)
    job = await create(managed, "CANCEL", processDefinitionKey="waits")
    await confirm(managed, job)
    await step(managed)
    await step(managed)

    cancelled = await managed.api.post(f"/bulk-jobs/{job['id']}/cancel")
    assert cancelled.json()["status"] == "CANCELLED"
    await managed.work()

    assert counts(await look(managed, job)) == ("CANCELLED", 4, 0, 0)
    assert managed.data.process_instances.count_documents({}) == 2
    assert managed.data.executable_tasks.count_documents({"type": "BULK_JOB"}) == 0
    again = await managed.api.post(f"/bulk-jobs/{job['id']}/confirm")
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")


async def test_a_job_is_confirmed_once_however_often_it_is_asked_for(managed: Managed) -> None:
    await waiting(managed, 1)
    job = await create(managed, "CANCEL", processDefinitionKey="waits")

    for _ in range(2):
        await confirm(managed, job)
    await managed.work()
    await confirm(managed, job)

    assert counts(await look(managed, job)) == ("DONE", 1, 0, 0)
    listed = (await managed.api.get("/bulk-jobs")).json()["items"]
    assert [each["id"] for each in listed] == [job["id"]]


async def test_a_job_of_a_tenant_touches_nothing_of_another(managed: Managed) -> None:
    own = await waiting(managed, 2, tenant_id="acme")
    others = [*await waiting(managed, 2, tenant_id="globex"), *await waiting(managed, 1)]
    services = tenant_services(managed, "acme")

    job = await bulk.create(
        services, BulkAction.CANCEL, BulkFilter(definition_key="waits"), created_by="ana"
    )
    assert (job.matched, job.tenant_id) == (2, "acme")
    await bulk.confirm(services, job.id, by="ana")
    await managed.work()

    done = await bulk.get(services, job.id)
    assert (done.status, done.counts) == (BulkStatus.DONE, BulkCounts(done=2))
    assert {await status_of(managed, each) for each in own} == {InstanceStatus.CANCELLED}
    assert {await status_of(managed, each) for each in others} == {InstanceStatus.ACTIVE}


def tenant_services(managed: Managed, tenant_id: str) -> Services:
    from kikwiflow_worker.operations.scoping import scoped

    return scoped(managed.services, tenant_id)


@pytest.mark.parametrize(
    "wrong",
    [
        {"action": "RETRY_INCIDENTS", "filter": {"businessKey": "W-1"}},
        {"action": "CANCEL", "filter": {"incidentType": "FAILED_JOB"}},
        {"action": "CANCEL", "filter": {"processInstanceId": "x"}},
        {"action": "MIGRATE"},
        {"action": "CANCEL", "version": 1},
    ],
)
async def test_a_filter_that_does_not_fit_is_refused(managed: Managed, wrong: Json) -> None:
    response = await managed.api.post("/bulk-jobs", json=wrong)

    assert (response.status_code, response.json()["code"]) == (422, "UNPROCESSABLE")
    assert managed.data.bulk_jobs.count_documents({}) == 0


async def test_what_is_not_there_is_not_found(managed: Managed) -> None:
    missing = await managed.api.post(
        "/bulk-jobs", json={"action": "CANCEL", "filter": {"processDefinitionKey": "nothing"}}
    )
    assert (missing.status_code, missing.json()["code"]) == (404, "DEFINITION_NOT_FOUND")
    for call in (
        managed.api.get("/bulk-jobs/nothing"),
        managed.api.post("/bulk-jobs/nothing/confirm"),
        managed.api.post("/bulk-jobs/nothing/cancel"),
    ):
        response = await call
        assert (response.status_code, response.json()["code"]) == (404, "NOT_FOUND")


async def test_an_item_that_fails_keeps_the_reason(managed: Managed) -> None:
    incident = await managed.a_failed_parcel()
    job = await bulk.create(
        managed.services, BulkAction.RETRY_INCIDENTS, BulkFilter(), created_by="ana"
    )
    managed.data.process_definitions.delete_many({})
    managed.data.incidents.update_one(
        {"_id": incident.id}, {"$set": {"processDefinitionId": "gone"}}
    )

    result = await do_item(managed.services, job, incident.id)

    assert result.ending is Ending.FAILED
    assert "definition gone is not in the database" in result.message
