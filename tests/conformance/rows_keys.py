"""Section 7.4: which correlation keys a node has."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.conformance.row import Difference
from tests.support.definitions import Json

REFUSED: None = None
Items = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRow:
    """One case.

    Attributes:
        node: Fields of the event catcher, or of the boundary catch event if ``is_boundary``.
        provided: What its provider gave.
        items: The keys with their labels; None if it is an error.
    """

    id: str
    case: str
    reference: str
    node: Json
    items: Items | None
    variables: Mapping[str, object] = field(default_factory=dict)
    provided: Sequence[tuple[str, str]] | None = None
    is_boundary: bool = False
    differs: Difference | None = None


def _alone(provider: str, **fields: object) -> Json:
    return {"catchType": "STANDALONE", "providerType": provider, **fields}


def _group(provider: str, **fields: object) -> Json:
    return {"catchType": "GROUP", "providerType": provider, **fields}


def _text(value: str) -> Json:
    return {"type": "LITERAL", "value": value}


def _variable(name: str) -> Json:
    return {"type": "VARIABLE", "value": name}


CARRIERS = {"providerVariable": "carriers", "keyPrefix": "carrier-", "keySuffix": "-offer"}
BEAN = {"providerBean": "keys"}
ERROR = "IllegalStateException"
OURS = Difference("`ExecutionError`", "errors are our own types, which say what to do next")

ROWS = (
    KeyRow(
        id="7.4-1", case="a fixed key", reference="one key, its label is the key",
        node=_alone("STATIC", staticKey="gates-open"), items=(("gates-open", "gates-open"),),
    ),
    KeyRow(
        id="7.4-2", case="a variable with prefix and suffix", reference="one key of the three",
        node=_alone("VARIABLE", providerVariable="order", keyPrefix="order-", keySuffix="-paid"),
        variables={"order": 9988}, items=(("order-9988-paid", "order-9988-paid"),),
    ),
    KeyRow(
        id="7.4-3", case="a group over a list", reference="a key for each element, in order",
        node=_group("VARIABLE", **CARRIERS), variables={"carriers": ["A", "B"]},
        items=(("carrier-A-offer",) * 2, ("carrier-B-offer",) * 2),
    ),
    KeyRow(
        id="7.4-4", case="a group over a list with an element twice", reference="each key once",
        node=_group("VARIABLE", **CARRIERS), variables={"carriers": ["A", "B", "A"]},
        items=(("carrier-A-offer",) * 2, ("carrier-B-offer",) * 2),
    ),
    KeyRow(
        id="7.4-5", case="a group over a text", reference=ERROR, differs=OURS,
        node=_group("VARIABLE", **CARRIERS), variables={"carriers": "A"}, items=REFUSED,
    ),
    KeyRow(
        id="7.4-6", case="a missing variable", reference=ERROR, differs=OURS,
        node=_alone("VARIABLE", providerVariable="order"), items=REFUSED,
    ),
    KeyRow(
        id="7.4-7", case="a group from a provider", reference="the provider's keys with their labels",
        node=_group("BEAN", **BEAN), provided=(("a", "First"), ("b", "Second")),
        items=(("a", "First"), ("b", "Second")),
    ),
    KeyRow(
        id="7.4-8", case="a provider that nobody has", reference=ERROR,
        node=_alone("BEAN", **BEAN), items=REFUSED,
        differs=Difference(
            "the node waits as a row for a worker that has the provider; without its answer there is no key",
            "handlers live in workers, which may be deployed after the definition",
        ),
    ),
    KeyRow(
        id="7.4-9", case="a template of text, variable and text", reference="one key, its label from its own parts",
        node=_alone(
            "TEMPLATE",
            correlationTemplates=[
                {
                    "keySegments": [_text("account-"), _variable("customer"), _text("-opened")],
                    "displayNameSegments": [_text("Account of "), _variable("customer")],
                }
            ],
        ),
        variables={"customer": "12345"}, items=(("account-12345-opened", "Account of 12345"),),
    ),
    KeyRow(
        id="7.4-10", case="a group of two templates without labels", reference="two keys, their labels are the keys",
        node=_group(
            "TEMPLATE",
            correlationTemplates=[
                {"keySegments": [_text("account-"), _variable("customer")], "displayNameSegments": None},
                {"keySegments": [_text("card-"), _variable("customer")], "displayNameSegments": None},
            ],
        ),
        variables={"customer": 7}, items=(("account-7", "account-7"), ("card-7", "card-7")),
    ),
    KeyRow(
        id="7.4-11", case="no template", reference=ERROR, differs=OURS,
        node=_alone("TEMPLATE", correlationTemplates=[]), items=REFUSED,
    ),
    KeyRow(
        id="7.4-12", case="a template with a variable that is missing", reference=ERROR, differs=OURS,
        node=_alone("TEMPLATE", correlationTemplates=[{"keySegments": [_variable("customer")]}]), items=REFUSED,
    ),
    KeyRow(
        id="7.4-13", case="a group over an empty list", reference=ERROR, differs=OURS,
        node=_group("VARIABLE", **CARRIERS), variables={"carriers": []}, items=REFUSED,
    ),
    KeyRow(
        id="7.4-14", case="two keys from a provider where one is allowed", reference=ERROR, differs=OURS,
        node=_alone("BEAN", **BEAN), provided=(("a", "a"), ("b", "b")), items=REFUSED,
    ),
    KeyRow(
        id="7.4-15", case="a boundary catch event with a fixed key", reference="the key", is_boundary=True,
        node={"providerType": "STATIC", "staticKey": "recall-parcel"}, items=(("recall-parcel",) * 2,),
    ),
    KeyRow(
        id="7.4-16", case="a boundary catch event with a variable and a prefix", reference="prefix and value", is_boundary=True,
        node={"providerType": "VARIABLE", "providerVariable": "parcel", "keyPrefix": "recall-"},
        variables={"parcel": 77}, items=(("recall-77",) * 2,),
    ),
    KeyRow(
        id="7.4-17", case="two keys from the provider of a boundary catch event", reference=ERROR, is_boundary=True, differs=OURS,
        node={"providerType": "BEAN", **BEAN}, provided=(("a", "a"), ("b", "b")), items=REFUSED,
    ),
    KeyRow(
        id="9.1-5a", case="a variable that is a truth value", reference="`true` or `false`",
        node=_alone("VARIABLE", providerVariable="x"), variables={"x": True}, items=(("true",) * 2,),
    ),
    KeyRow(
        id="9.1-5b", case="a variable that is a whole floating-point number", reference="with a fraction: `50.0`",
        node=_alone("VARIABLE", providerVariable="x"), variables={"x": 50.0}, items=(("50.0",) * 2,),
    ),
    KeyRow(
        id="9.1-5c", case="a variable that is a large floating-point number", reference="in E notation: `1.0E7`",
        node=_alone("VARIABLE", providerVariable="x"), variables={"x": 1e7}, items=(("1.0E7",) * 2,),
    ),
    KeyRow(
        id="9.1-5d", case="a list where one key is wanted", reference="its text: `[1, 2]`",
        node=_alone("VARIABLE", providerVariable="x"), variables={"x": [1, 2]}, items=(("[1, 2]",) * 2,),
    ),
    KeyRow(
        id="9.1-5e", case="a variable that is an object", reference="its text: `{k=v}`",
        node=_alone("VARIABLE", providerVariable="x"), variables={"x": {"k": "v"}}, items=(("{k=v}",) * 2,),
    ),
)  # fmt: skip
