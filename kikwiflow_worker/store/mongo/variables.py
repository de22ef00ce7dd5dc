"""How changes of variables are written: each by its own path, so that different ones never disturb each other."""

from collections.abc import Sequence
from typing import assert_never

from kikwiflow_worker.model.variables import (
    AppendToVariable,
    IncrementVariable,
    SetVariable,
    UnsetVariable,
    VariableChange,
)
from kikwiflow_worker.store.mongo.codec import encode_value, encode_variable, escape_key
from kikwiflow_worker.store.mongo.driver import Document


def variable_update(changes: Sequence[VariableChange]) -> Document:
    """Return the update for net changes of variables, each by its own path (protocol R17)."""
    update: Document = {}
    for change in changes:
        path = f"variables.{escape_key(change.name)}"
        match change:
            case SetVariable(name, value):
                update.setdefault("$set", {})[path] = encode_variable(name, value)
            case UnsetVariable():
                update.setdefault("$unset", {})[path] = ""
            case IncrementVariable(name, by):
                update.setdefault("$set", {})[f"{path}.name"] = name
                update.setdefault("$inc", {})[f"{path}.value"] = by
            case AppendToVariable(name, value):
                update.setdefault("$set", {})[f"{path}.name"] = name
                each = update.setdefault("$push", {}).setdefault(f"{path}.value", {"$each": []})
                each["$each"].append(encode_value(value))
            case _:
                assert_never(change)
    return update
