"""The timeline on the page of an instance: what happened last first, and page by page either way."""

import pytest

from kikwiflow_worker.management.web import instance_page
from tests.support.management import Managed, managed, recorded
from tests.support.pages import Element, look, titles_of

pytestmark = pytest.mark.mongo

__all__ = ["managed", "recorded"]


async def test_the_timeline_begins_with_the_newest_and_goes_on_either_way(
    recorded: Managed, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = await recorded.an_ended_parcel()
    whole = titles_of(await look(recorded, f"/instances/{instance.id}"))
    monkeypatch.setattr(instance_page, "EVENTS", 3)

    newest = await look(recorded, f"/instances/{instance.id}")
    oldest = await follow(recorded, newest, "Oldest first")
    backward = await read_on(recorded, newest, "Earlier events")
    forward = await read_on(recorded, oldest, "Later events")

    assert titles_of(newest) == whole[:3]
    assert whole[0] == titles_of(forward[-1])[-1] == "Ended"
    assert len(backward) > 2
    for pages in (backward, forward):
        assert sorted(title for page in pages for title in titles_of(page)) == sorted(whole)
    for label, page, first in (
        ("First events", forward[-1], oldest),
        ("Newest first", forward[-1], newest),
        ("Newest events", backward[-1], newest),
    ):
        assert titles_of(await follow(recorded, page, label)) == titles_of(first)


async def follow(managed: Managed, page: Element, label: str) -> Element:
    (found,) = (each for each in page.all("a") if each.text == label)
    address = found.attributes["href"]
    return await look(managed, address.removeprefix("/dashboard").partition("#")[0])


async def read_on(managed: Managed, page: Element, label: str) -> list[Element]:
    """Return a page and those behind it."""
    pages = [page]
    while any(each.text == label for each in pages[-1].all("a")):
        pages.append(await follow(managed, pages[-1], label))
    return pages
