"""No call of the store's codec forgets the keys: what is encoded without them would be stored plain."""

import ast
from pathlib import Path

import kikwiflow_worker.store.mongo as adapter

SEALED = {
    "encode_instance": 2,
    "encode_task": 2,
    "encode_message": 2,
    "encode_incident": 2,
    "encode_loop": 3,
    "encode_variables": 3,
    "encode_variable": 4,
    "encode_payload": 3,
    "decode_instance": 2,
    "decode_message": 2,
    "decode_task": 2,
    "decode_row": 2,
    "decode_incident": 2,
    "decode_event": 2,
    "decode_variables": 3,
    "decode_payload": 3,
    "variable_update": 3,
    "decision": 3,
}
"""Functions that seal or open values, and how many arguments they have with the keys."""


def calls() -> list[tuple[str, str, int]]:
    """Return every use of such a function in the adapter: where it is, its name, and how many arguments it is given.

    One that is handed on without a call, as to ``map``, counts as a call with one.
    """
    found = []
    for path in sorted(Path(adapter.__path__[0]).glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        called = {
            id(node.func): len(node.args) + len(node.keywords)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
        }
        # functools.partial(decode_instance, sealing=...) is given its own arguments, and the document later.
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "partial":
                called[id(node.args[0])] = len(node.args) + len(node.keywords)
        found += [
            (f"{path.name}:{node.lineno}", node.id, called.get(id(node), 1))
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id in SEALED and isinstance(node.ctx, ast.Load)
        ]
    return found


def test_every_use_of_the_codec_is_given_the_keys() -> None:
    uses = calls()
    forgetful = [(where, name) for where, name, given in uses if given < SEALED[name]]

    assert forgetful == []
    assert {name for _, name, _ in uses} == SEALED.keys()
