"""What tests of the application are built on."""

from kikwiflow_worker.model.runtime import InstanceStatus
from tests.support.management import Managed


async def test_parcels_come_to_every_state(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel("PARCEL-1")
    incident = await managed.a_failed_parcel("PARCEL-2")
    ended = await managed.an_ended_parcel("PARCEL-3")

    assert (await managed.task_of(waiting)).node_id == "APPROVE"
    assert "the scales are broken" in incident.message
    assert ended.status is InstanceStatus.COMPLETED


async def test_the_application_answers(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel()

    response = await managed.api.get(f"/process-instances/{waiting.id}")

    assert response.status_code == 200
    assert response.json()["businessKey"] == "PARCEL-1"
