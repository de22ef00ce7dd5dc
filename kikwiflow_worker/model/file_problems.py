"""What is wrong with the values of a definition file, in words for its author."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from kikwiflow_worker.errors import Problem
from kikwiflow_worker.model.json_source import ASSIGNED_FIELDS, json_kind, json_path
from kikwiflow_worker.model.nodes import (
    NODE_CLASSES,
    CorrelationTemplate,
    FilePart,
    Layout,
    RetryPolicy,
    SchedulePolicy,
    SequenceFlow,
    TemplateSegment,
)

_Path = tuple[str | int, ...]

_NESTED: Mapping[str, type[FilePart]] = {
    "outgoing": SequenceFlow,
    "layout": Layout,
    "positionHandlers": Layout,
    "retryPolicy": RetryPolicy,
    "schedulePolicy": SchedulePolicy,
    "correlationTemplates": CorrelationTemplate,
    "keySegments": TemplateSegment,
    "displayNameSegments": TemplateSegment,
}

# Written by editors, without a meaning for any engine: not worth a warning.
_SILENT_FIELDS = ASSIGNED_FIELDS | {
    "sla",
    "transitionType",
    "labelPosition",
    "sourceHandle",
    "extensionProperties",
    "positionHandlers",
}

# Authors believe that these work.
_MISLEADING_FIELDS: Mapping[str, str] = {
    "boundaryEvents": "declare each event as a node of its own in flowNodes and list its key in boundaryEventIds",
    "backoffStrategy": "write a retryPolicy with strategy, maxRetries and intervals",
    "sla": "attach a BOUNDARY_INTERRUPTIVE_TIMER to the node for a deadline",
}

_EXPECTED: Mapping[str, str] = {
    "string_type": "a text",
    "string_unicode": "a text of whole characters",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "mapping_type": "an object",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def type_problems(error: ValidationError, data: Mapping[str, object]) -> list[Problem]:
    """Return one problem for each value that has the wrong type or is missing.

    Args:
        error: What pydantic found.
        data: The top-level object of the file, to say what is written there.
    """
    return [_problem(details, data) for details in error.errors(include_url=False)]


def unknown_field_warnings(data: Mapping[str, object], *, known: type[FilePart]) -> list[Problem]:
    """Return a warning for each field that has no meaning where it stands.

    Args:
        data: The top-level object of the file.
        known: The model of the top level.
    """
    warnings = list(_unknown(data, known, ()))
    nodes = data.get("flowNodes")
    if isinstance(nodes, Mapping):
        for key, node in nodes.items():
            if isinstance(node, Mapping):
                node_class = NODE_CLASSES.get(str(node.get("type")))
                if node_class is not None:
                    warnings += _unknown(node, node_class, ("flowNodes", key))
    return warnings


def closest(word: str, words: Iterable[str]) -> str | None:
    """Return the one of ``words`` that ``word`` most likely stands for, None if none is close."""
    by_folded = {candidate.casefold(): candidate for candidate in words}
    matches = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def _unknown(data: Mapping[str, object], model: type[FilePart], path: _Path) -> Iterator[Problem]:
    fields = {field.alias or name for name, field in model.model_fields.items()}
    fields -= {"declaredId"}
    for key, value in data.items():
        if key in fields:
            nested = _NESTED.get(key)
            if nested is not None:
                for place, part in _parts(value, (*path, key)):
                    yield from _unknown(part, nested, place)
        elif (warning := _unknown_field(key, fields, path)) is not None:
            yield warning


def _parts(value: object, path: _Path) -> Iterator[tuple[_Path, Mapping[str, object]]]:
    if isinstance(value, Mapping):
        yield path, value
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            if isinstance(entry, Mapping):
                yield (*path, index), entry


def _unknown_field(key: str, fields: set[str], path: _Path) -> Problem | None:
    place = json_path((*path, key))
    if path and key in _MISLEADING_FIELDS:
        return Problem(place, f"{key!r} is ignored", _MISLEADING_FIELDS[key], is_error=False)
    if key in _SILENT_FIELDS:
        return None
    guess = closest(key, fields)
    hint = f"did you mean {guess!r}?" if guess else "remove it, or keep it in extensionProperties"
    return Problem(
        place, f"the field {key!r} is not known here and is ignored", hint, is_error=False
    )


def _problem(details: ErrorDetails, data: Mapping[str, object]) -> Problem:
    path = _file_path(details["loc"])
    place = json_path(path)
    kind = details["type"]
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        return _node_type_problem(path, data)
    if kind == "missing":
        return Problem(place, "is missing", _MISSING_HINTS.get(str(path[-1]), "add it"))
    if kind == "enum":
        return _word_problem(place, details)
    found = json_kind(_value_at(data, path))
    expected = _EXPECTED.get(kind)
    if expected is None:
        return Problem(place, f"cannot be read: {details['msg']}", "correct the value")
    return Problem(place, f"is {found}", f"write {expected}")


_MISSING_HINTS: Mapping[str, str] = {
    "key": 'add the name under which versions are counted, as "key": "expense-approval"',
    "flowNodes": 'add the graph, as "flowNodes": {"START": {...}, ...}',
}


def _file_path(location: tuple[int | str, ...]) -> _Path:
    """Return the place in the file; pydantic puts the node type and the marks of dictionaries in between."""
    path = [part for part in location if part != "[key]"]
    if len(path) > 2 and path[0] == "flowNodes" and path[2] in NODE_CLASSES:
        del path[2]
    return tuple("id" if part == "declaredId" else part for part in path)


def _value_at(data: object, path: _Path) -> object:
    for part in path:
        if isinstance(data, Mapping):
            data = data.get(str(part))
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
    return data


def _node_type_problem(path: _Path, data: Mapping[str, object]) -> Problem:
    node = _value_at(data, path)
    place = json_path((*path, "type"))
    allowed = ", ".join(NODE_CLASSES)
    written = node.get("type") if isinstance(node, Mapping) else None
    if written is None:
        return Problem(place, "is missing", f"write one of {allowed}")
    guess = closest(str(written), NODE_CLASSES)
    suggestion = f"did you mean {guess}? " if guess else ""
    return Problem(
        place, f"{written!r} is not a node type", f"{suggestion}The node types are {allowed}"
    )


def _word_problem(place: str, details: ErrorDetails) -> Problem:
    expected = str(details.get("ctx", {}).get("expected", "")).replace("'", "")
    return Problem(place, f"{details['input']!r} is not known", f"write {expected}")
