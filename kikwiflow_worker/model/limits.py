"""All limits on what is stored and run, in one place; ``docs/reference/limits.md`` is made from this module.

A limit is there because something behind it is finite: MongoDB's documents (16 MB) and transactions (a minute), and the
time a step may keep others waiting. What would pass one is refused by the limit's name and nothing is written: at deploy,
when a variable is set, in the answer to a caller, or as an incident on an instance that is as it was.
"""

from dataclasses import dataclass

MAX_DEFINITION_BYTES = 4 * 1024 * 1024
MAX_NODES = 10_000
MAX_BRANCHES = 5_000
MAX_NESTED_SPLITS = 50
MAX_INLINE_NODES = 1_000
MAX_STEP_NODES = 20_000
MAX_CHILDREN = 10_000
MAX_CALL_DEPTH = 20
MAX_GROUP_KEYS = 1_000
MAX_VARIABLE_BYTES = 1024 * 1024
MAX_INSTANCE_BYTES = 8 * 1024 * 1024
MAX_DOCUMENT_BYTES = 14 * 1024 * 1024
MAX_VALUE_DEPTH = 60


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit, for people.

    Attributes:
        name: Of the constant in this module; refusals name it.
        value: With its unit, if it has one.
        of: What it limits.
        refused: When something is refused, and how.
    """

    name: str
    value: str
    of: str
    refused: str


_DEPLOY = "at deploy, as an error of the file"
_INCIDENT = "as an incident of the step; a start or a completion is refused"

LIMITS: tuple[Limit, ...] = (
    Limit(
        "MAX_DEFINITION_BYTES",
        f"{MAX_DEFINITION_BYTES:,} bytes",
        "the text of a definition",
        _DEPLOY,
    ),
    Limit("MAX_NODES", f"{MAX_NODES:,}", "nodes of a definition", _DEPLOY),
    Limit("MAX_BRANCHES", f"{MAX_BRANCHES:,}", "branches of one split", _DEPLOY),
    Limit(
        "MAX_NESTED_SPLITS",
        f"{MAX_NESTED_SPLITS:,}",
        "splits inside one another with no task, timer or event between them",
        f"{_DEPLOY}; of a version deployed before, {_INCIDENT}",
    ),
    Limit(
        "MAX_INLINE_NODES",
        f"{MAX_INLINE_NODES:,}",
        "nodes of a path in one commit: it rests at the next task and goes on in another. "
        "A path that passes twice as many and meets no task is taken for an endless loop",
        _INCIDENT,
    ),
    Limit(
        "MAX_STEP_NODES",
        f"{MAX_STEP_NODES:,}",
        "nodes of all paths together in one commit",
        _INCIDENT,
    ),
    Limit("MAX_CHILDREN", f"{MAX_CHILDREN:,}", "elements of a call activity's list", _INCIDENT),
    Limit("MAX_CALL_DEPTH", f"{MAX_CALL_DEPTH:,}", "call activities above one another", _INCIDENT),
    Limit("MAX_GROUP_KEYS", f"{MAX_GROUP_KEYS:,}", "correlation keys of a group", _INCIDENT),
    Limit(
        "MAX_VARIABLE_BYTES",
        f"{MAX_VARIABLE_BYTES:,} bytes",
        "one variable",
        "where it is set: an error in the handler, or for the caller; unhandled, an incident VARIABLES_TOO_LARGE",
    ),
    Limit(
        "MAX_INSTANCE_BYTES",
        f"{MAX_INSTANCE_BYTES:,} bytes",
        "all variables of an instance, as a step sees them; a step that adds nothing is let through",
        "as an incident VARIABLES_TOO_LARGE; a start, a completion, a message or a person's change is refused",
    ),
    Limit(
        "MAX_DOCUMENT_BYTES",
        f"{MAX_DOCUMENT_BYTES:,} bytes",
        "an instance as it is stored, checked in the commit: what parallel branches and children add up to; "
        "MongoDB's own limit is 16 MB",
        "as MAX_INSTANCE_BYTES",
    ),
    Limit(
        "MAX_VALUE_DEPTH",
        f"{MAX_VALUE_DEPTH:,} levels",
        "lists and dicts inside one another; MongoDB's own limit is 100",
        "as MAX_VARIABLE_BYTES",
    ),
)
