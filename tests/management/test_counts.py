"""Counts are narrowed by the same parameters as the lists that they count."""

import pytest

from tests.support.management import PARCEL, PARCEL_NODES, Managed

pytestmark = pytest.mark.mongo


async def test_a_count_is_that_of_its_list_whatever_narrows_them(managed: Managed) -> None:
    await managed.deploy()
    other = await managed.deploy(*PARCEL_NODES, key="letter")
    for tenant, key in (("red", PARCEL), ("blue", PARCEL), ("red", "letter")):
        recall = {"recallKey": f"recall-{tenant}-{key}"}
        for variables in (recall, recall | {"broken": True}):
            await managed.kikwiflow.start(key, "P-1", tenant_id=tenant, variables=variables)
    await managed.work()
    (instance,) = (
        await managed.api.get("/process-instances", params={"limit": 1})
    ).json()["items"]  # fmt: skip
    found: dict[str, set[int]] = {}
    for listed in ("executable-tasks", "external-tasks", "incidents"):
        for narrowed in (
            {},
            {"tenantId": "red"},
            {"tenantId": "red", "processDefinitionKey": PARCEL},
            {"processDefinitionKey": "letter"},
            {"processDefinitionId": other},
            {"processInstanceId": instance["id"]},
            {"taskDefinitionId": "nowhere"},
        ):
            rows = await managed.api.get(f"/{listed}", params=narrowed)
            count = await managed.api.get(f"/{listed}/count", params=narrowed)
            assert count.json()["total"] == len(rows.json()["items"]), (listed, narrowed)
            found.setdefault(listed, set()).add(count.json()["total"])

    assert all(len(numbers) >= 4 for numbers in found.values()), found
