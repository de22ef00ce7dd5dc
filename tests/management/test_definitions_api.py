"""Deploying, listing and changing definitions over HTTP."""

import pytest

from tests.support.definitions import Json, a_file, a_start, a_task, an_end
from tests.support.management import PARCEL, Managed

pytestmark = pytest.mark.mongo

VALID = a_file(a_start(), a_task("TASK", "END"), an_end(), key="order", name="Order")
DEFINITIONS = "/process-definitions"


async def deploy(managed: Managed, file: Json = VALID, **parameters: str) -> tuple[int, Json]:
    response = await managed.api.post(DEFINITIONS, json=file, params=parameters)
    return response.status_code, response.json()


async def test_a_deploy_stores_a_version_once(managed: Managed) -> None:
    first = await deploy(managed)
    again = await deploy(managed)
    other = await deploy(managed, {**VALID, "name": "Other"})

    assert (first[0], first[1]["version"], first[1]["created"]) == (201, 1, True)
    assert (again[0], again[1]["id"], again[1]["created"]) == (200, first[1]["id"], False)
    assert (other[0], other[1]["version"], other[1]["isLatest"]) == (201, 2, True)


async def test_a_dry_run_only_checks(managed: Managed) -> None:
    status, body = await deploy(managed, dryRun="true")

    assert (status, body["isDryRun"], body["id"], body["version"]) == (200, True, None, None)
    assert managed.data.process_definitions.count_documents({}) == 0


async def test_content_of_an_older_version_can_be_activated(managed: Managed) -> None:
    await deploy(managed)
    await deploy(managed, {**VALID, "name": "Other"})

    kept = await deploy(managed)
    activated = await deploy(managed, activate="true")

    assert (kept[0], kept[1]["version"], kept[1]["isLatest"]) == (200, 1, False)
    assert (activated[0], activated[1]["version"], activated[1]["isLatest"]) == (201, 3, True)


async def test_all_problems_of_an_invalid_definition_are_listed(managed: Managed) -> None:
    broken = a_file(a_start("NOWHERE"), a_task("TASK", "ALSO_NOWHERE"), an_end())

    status, body = await deploy(managed, broken)

    assert (status, body["code"]) == (422, "INVALID_DEFINITION")
    paths = {each["path"] for each in body["problems"] if each["isError"]}
    assert {
        "flowNodes.START.outgoing[0].targetNodeId",
        "flowNodes.TASK.outgoing[0].targetNodeId",
    } <= paths


NO_DEFINITIONS = [
    (b"{", "application/json", 422),
    (b"", "application/json", 422),
    (b"key: order", "application/yaml", 415),
]


async def test_what_is_no_definition_is_refused(managed: Managed) -> None:
    for content, media_type, status in NO_DEFINITIONS:
        response = await managed.api.post(
            DEFINITIONS, content=content, headers={"Content-Type": media_type}
        )
        assert response.status_code == status, content
        assert response.headers["Content-Type"] == "application/problem+json"


async def test_a_version_is_shown_with_every_field_of_its_file(managed: Managed) -> None:
    file = {**VALID, "extensionProperties": {"owner": "logistics"}}
    file["flowNodes"] = {**VALID["flowNodes"], "TASK": {**a_task("TASK", "END"), "ours": {"x": 1}}}  # type: ignore[dict-item]
    _, deployed = await deploy(managed, file)

    by_id = (await managed.api.get(f"{DEFINITIONS}/{deployed['id']}")).json()
    by_key = (await managed.api.get(f"{DEFINITIONS}/one-by-key/order")).json()

    assert by_id == by_key
    assert by_id["flowNodes"]["TASK"]["ours"] == {"x": 1}
    assert by_id["extensionProperties"] == {"owner": "logistics"}


async def test_a_version_that_is_known_is_not_sent_again(managed: Managed) -> None:
    _, deployed = await deploy(managed)
    path = f"{DEFINITIONS}/{deployed['id']}"
    tag = (await managed.api.get(path)).headers["ETag"]

    known = await managed.api.get(path, headers={"If-None-Match": f'"other", W/{tag}'})
    unknown = await managed.api.get(path, headers={"If-None-Match": '"other"'})

    assert (known.status_code, known.content, known.headers["ETag"]) == (304, b"", tag)
    assert unknown.status_code == 200


async def test_the_list_changes_its_tag_with_what_it_shows(managed: Managed) -> None:
    await deploy(managed)
    before = (await managed.api.get(DEFINITIONS)).headers["ETag"]

    await managed.api.post(f"{DEFINITIONS}/by-key/order/suspend")
    after = await managed.api.get(DEFINITIONS, headers={"If-None-Match": before})

    assert after.status_code == 200
    assert after.json()["items"][0]["isSuspended"] is True


async def test_lists_go_on_behind_their_cursor(managed: Managed) -> None:
    for key in ("a", "b", "c"):
        await deploy(managed, {**VALID, "key": key})
    for name in ("x", "y"):
        await deploy(managed, {**VALID, "key": "c", "name": name})

    async def pages(**parameters: str) -> list[tuple[str, int]]:
        rows: list[tuple[str, int]] = []
        cursor: str | None = None
        while True:
            more = {"cursor": cursor} if cursor else {}
            page = (
                await managed.api.get(DEFINITIONS, params={"limit": "2", **parameters, **more})
            ).json()
            assert len(page["items"]) <= 2
            rows += [(row["key"], row["version"]) for row in page["items"]]
            cursor = page["nextCursor"]
            if cursor is None:
                return rows

    assert await pages() == [("a", 1), ("b", 1), ("c", 3)]
    assert await pages(key="c") == [("c", 3), ("c", 2), ("c", 1)]


NO_CURSORS = ["nonsense", "WzFd", "bnVsbA", "W10", "%ff"]


async def test_a_cursor_that_no_page_gave_is_refused(managed: Managed) -> None:
    await managed.deploy()

    for cursor in NO_CURSORS:
        response = await managed.api.get(DEFINITIONS, params={"cursor": cursor})
        assert response.json()["code"] == "UNPROCESSABLE", cursor


async def test_a_suspended_definition_starts_nothing_until_it_is_resumed(managed: Managed) -> None:
    instance = await managed.a_waiting_parcel()
    start = {"processDefinitionKey": PARCEL, "businessKey": "P-2"}

    suspended = await managed.api.post(f"{DEFINITIONS}/by-key/{PARCEL}/suspend")
    refused = await managed.api.post("/process-instances", json=start)
    shown = await managed.api.get(f"/process-instances/{instance.id}")
    resumed = await managed.api.post(f"{DEFINITIONS}/by-key/{PARCEL}/resume")
    started = await managed.api.post("/process-instances", json=start)

    assert suspended.json() == {"instances": 1}
    assert (refused.status_code, refused.json()["code"]) == (409, "CONFLICT")
    assert shown.json()["status"] == "SUSPENDED"
    assert resumed.json() == {"instances": 1}
    assert started.status_code == 201


async def test_instances_are_migrated_after_a_look_at_them(managed: Managed) -> None:
    instances = [await managed.a_waiting_parcel(f"P-{n}") for n in range(3)]
    await managed.deploy(name="Parcel, second version")
    path = f"{DEFINITIONS}/by-key/{PARCEL}/migrate"

    looked = (await managed.api.post(path, json={})).json()
    some = (await managed.api.post(path, json={"dryRun": False, "limit": 2})).json()
    rest = (await managed.api.post(path, json={"dryRun": False, "limit": 2})).json()

    assert (len(looked["items"]), looked["isComplete"]) == (3, True)
    assert not any(verdict["migrated"] for verdict in looked["items"])
    assert (len(some["items"]), some["isComplete"]) == (2, False)
    assert (len(rest["items"]), rest["isComplete"]) == (1, True)
    for instance in instances:
        assert (await managed.kikwiflow.get_instance(instance.id)).definition_version == 2


OF_A_DEFINITION = [
    ("GET", "/process-definitions/unknown"),
    ("GET", "/process-definitions/one-by-key/unknown"),
    ("POST", "/process-definitions/by-key/unknown/suspend"),
    ("POST", "/process-definitions/by-key/unknown/resume"),
    ("POST", "/process-definitions/by-key/unknown/migrate"),
    ("GET", "/pulse/process-definition/unknown/snapshot"),
]


async def test_an_unknown_definition_is_not_found(managed: Managed) -> None:
    for method, path in OF_A_DEFINITION:
        response = await managed.api.request(method, path, json={})
        found = (response.status_code, response.json()["code"])
        assert found == (404, "DEFINITION_NOT_FOUND"), (method, path)


async def test_figures_stand_at_their_nodes(managed: Managed) -> None:
    waiting = await managed.a_waiting_parcel("P-1")
    await managed.a_failed_parcel("P-2")

    stats = (
        await managed.api.get(f"/pulse/process-definition/{waiting.definition_id}/snapshot")
    ).json()

    assert (stats["metrics"]["running"], stats["metrics"]["fail"]) == (2, 1)
    nodes = {node: each["metrics"] for node, each in stats["flowNodes"].items()}
    assert (nodes["APPROVE"]["running"], nodes["APPROVE"]["fail"]) == (1, 0)
    assert (nodes["WEIGH"]["running"], nodes["WEIGH"]["fail"]) == (1, 1)


async def test_clearing_the_cache_does_nothing(managed: Managed) -> None:
    assert (await managed.api.delete(f"{DEFINITIONS}/cache")).status_code == 204
