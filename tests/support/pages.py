"""Reading pages of the dashboard without a browser."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx

from tests.support.management import Managed

BROWSER = {"Sec-Fetch-Site": "same-origin"}
"""What a browser says of a form that one of our pages sent."""

VOID = frozenset({"br", "img", "input", "link", "meta"})


@dataclass(slots=True)
class Element:
    """One element of a page.

    Attributes:
        content: Its elements and texts, in their order.
    """

    tag: str
    attributes: dict[str, str]
    content: "list[Element | str]" = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text in it, with single blanks."""
        parts = (part if isinstance(part, str) else part.text for part in self.content)
        return " ".join(" ".join(parts).split())

    def all(self, tag: str, **attributes: str) -> "list[Element]":
        """Return the elements in it with this tag and these attributes; ``class_`` is one of its classes."""
        found = [self] if self._fits(tag, attributes) else []
        for part in self.content:
            if isinstance(part, Element):
                found += part.all(tag, **attributes)
        return found

    def one(self, tag: str, **attributes: str) -> "Element":
        """Return the only such element."""
        (found,) = self.all(tag, **attributes)
        return found

    def _fits(self, tag: str, wanted: dict[str, str]) -> bool:
        if tag not in {self.tag, "*"}:
            return False
        return all(
            value in self.attributes.get("class", "").split()
            if name == "class_"
            else self.attributes.get(name.replace("_", "-")) == value
            for name, value in wanted.items()
        )


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].content.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self.open[-1].content.append(Element(tag, attributes))

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].content.append(data)


def read_page(response: httpx.Response) -> Element:
    """Return a page's root; its elements must be nested as they should be."""
    assert response.headers["content-type"].startswith("text/html")
    reader = _Reader()
    reader.feed(response.text)
    reader.close()
    assert reader.open == [reader.root], f"<{reader.open[-1].tag}> is not ended"
    return reader.root


def fields_of(form: Element) -> dict[str, str]:
    """Return what a browser would send of a form that nobody has filled in."""
    found = {
        each.attributes["name"]: each.attributes.get("value", "")
        for each in form.all("input")
        if each.attributes.get("type") not in {"file", "checkbox", "radio"}
    }
    found |= {each.attributes["name"]: each.text for each in form.all("textarea")}
    for select in form.all("select"):
        options = select.all("option")
        chosen = next((each for each in options if "selected" in each.attributes), options[0])
        found[select.attributes["name"]] = chosen.attributes["value"]
    return found


async def look(managed: Managed, path: str) -> Element:
    """Return a page of the dashboard."""
    response = await managed.http.get(f"/dashboard{path}")
    assert response.status_code == 200, response.text
    return read_page(response)


async def submit(managed: Managed, path: str, **given: str) -> httpx.Response:
    """Open the form at a path, fill it in and send it, as a browser does without JavaScript."""
    form = (await look(managed, path)).one("form", method="post")
    address = form.attributes.get("action", f"/dashboard{path}")
    return await managed.http.post(address, data=fields_of(form) | given, headers=BROWSER)


def titles_of(page: Element) -> list[str]:
    """Return what the entries of a timeline say, in their order."""
    return [each.one("strong").text for each in page.one("ol", class_="timeline").all("li")]
