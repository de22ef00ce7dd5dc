"""What the API's documents have in common: names in camel case, instants in ISO 8601, unknown fields refused."""

from typing import Generic, TypeVar

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

T = TypeVar("T")


class Shape(BaseModel):
    """The base of all documents."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        serialize_by_alias=True,
        frozen=True,
        from_attributes=True,
    )


class Request(Shape):
    """The base of what callers send: a misspelled field is an error, never silently dropped."""

    model_config = ConfigDict(extra="forbid")


class PageOf(Shape, Generic[T]):
    """One page of a list; give ``nextCursor`` as ``cursor`` to go on, until it is null."""

    items: list[T]
    next_cursor: str | None
