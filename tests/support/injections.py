"""Looks at commands and at what is stored, for texts of a caller that became more than texts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pymongo.database import Database
from pymongo.monitoring import CommandListener

from tests.support.stores import Json

MARK = "poison"
"""What every poisonous text of a caller holds."""


@dataclass
class Recorder(CommandListener):
    """Keeps every command that a client sends."""

    commands: list[Json] = field(default_factory=list)

    def started(self, event: Any) -> None:
        self.commands.append(dict(event.command))

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass


def contents(stored: Database[Json]) -> dict[str, list[Json]]:
    """Return everything that is stored, but for what says how far in time it is."""
    return {
        name: sorted(stored[name].find(), key=lambda row: str(row["_id"]))
        for name in sorted(stored.list_collection_names())
    }


def unchanged(before: Mapping[str, list[Json]], after: Mapping[str, list[Json]]) -> bool:
    """Return whether everything that was there is there as it was."""
    return all(row in after[name] for name, rows in before.items() for row in rows)


def holds(value: object, text: str) -> bool:
    """Return whether a text stands somewhere in a command."""
    match value:
        case Mapping():
            return any(holds(item, text) for item in value.values())
        case list():
            return any(holds(item, text) for item in value)
        case _:
            return value == text


def dangers(commands: list[Json]) -> list[str]:
    """Return where commands have text of a user as a key, a path or an expression."""
    return [
        f"{place}: {found!r}"
        for command in commands
        for place, found in _dangers(command, next(iter(command)), is_expression=False)
    ]


def _dangers(value: object, place: str, *, is_expression: bool) -> Iterator[tuple[str, object]]:
    match value:
        case Mapping():
            for key, item in value.items():
                if key == "$literal":
                    continue
                if MARK in key and not _is_plain(key):
                    yield f"{place}.{key}", "a key"
                # Only updates are a list under these names; one is a pipeline.
                is_pipeline = key in {"u", "update", "pipeline"} and isinstance(item, list)
                inside = is_expression or key == "$expr" or (is_pipeline and key != "pipeline")
                yield from _dangers(item, f"{place}.{key}", is_expression=inside)
        case list():
            for item in value:
                yield from _dangers(item, place, is_expression=is_expression)
        case str() if is_expression and MARK in value:
            yield place, value
        case _:
            pass


def _is_plain(key: str) -> bool:
    """Return whether a key is an escaped name, or the path of the variable with that name."""
    inner = key.removeprefix("variables.").removesuffix(".value").removesuffix(".name")
    return not set(inner) & set("$.\0")
