"""Checks every instance: its trail, its variables, its children, and the answers that were given about it."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from pymongo.database import Database

from tests.chaos.load_shape import Json
from tests.chaos.verify_effects import Effects, Steps
from tests.chaos.verify_ledger import Promises
from tests.chaos.verify_report import Kind, Violation
from tests.chaos.verify_shape import Children, Entry, Inspector

_BATCH = 200
_FIELDS = [
    "businessKey",
    "status",
    "processDefinitionKey",
    "parentInstanceId",
    "starterTaskId",
    "variables",
    "startedAt",
    "endedAt",
]
_COMPLETED = "COMPLETED"


@dataclass(slots=True)
class Instances:
    """Goes through all instances, and remembers what has to be compared across them."""

    promises: Promises
    effects: Effects
    violations: list[Violation] = field(default_factory=list)
    ended: int = 0
    committed: int = 0
    completers: dict[tuple[str, str], str] = field(default_factory=dict)
    """Who completed the external tasks of an instance's node, as its variables say."""

    received: Counter[str] = field(default_factory=Counter)
    """How many instances took each message."""

    _seen: dict[str, str] = field(default_factory=dict)
    _roots: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _starters: dict[str, str] = field(default_factory=dict)
    _children: dict[str, dict[str, Children]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(Children))
    )

    def check(self, database: Database[Json]) -> None:
        """Check the instances that have ended, those that still run, and those that should be there."""
        fields = dict.fromkeys(_FIELDS, 1)
        for is_child in (True, False):
            # Children first: their parents are compared with them.
            found = {"parentInstanceId": {"$exists": is_child}}
            for document in database.process_history.find(found, fields, batch_size=_BATCH):
                self._check_ended(document)
        for document in database.process_instances.find({}, fields, batch_size=_BATCH):
            self._check_running(document, database)
        self._check_starts()
        for instance_id in self.effects.by_instance.keys() - self._seen.keys():
            nodes = {calls.node for calls in self.effects.by_instance[instance_id].values()}
            self._note(
                Kind.LOST,
                f"instance {instance_id} ran {', '.join(sorted(nodes))} and is in no collection",
            )

    def _note(self, kind: Kind, words: str) -> None:
        self.violations.append(Violation(kind, words))

    def _check_ended(self, document: Json) -> None:
        self.ended += 1
        status, where = document["status"], _where(document)
        is_completed = status == _COMPLETED
        if not is_completed and not self._may_be_cancelled(document):
            self._note(Kind.LOST, f"{where} was cancelled, and nobody asked for that")
        if document["endedAt"] < document["startedAt"]:
            self._note(Kind.OTHER, f"{where} ended before it was started")
        self._check_one(document, where, is_complete=is_completed)

    def _check_running(self, document: Json, database: Database[Json]) -> None:
        where = _where(document)
        found = {"processInstanceId": document["_id"]}
        rests = [
            f"{row['taskDefinitionId']} ({row['status']}, task {row['_id']})"
            for name in ("executable_tasks", "external_tasks")
            for row in database[name].find(found).limit(5)
        ]
        at = ", ".join(rests) or "no task at all"
        self._note(Kind.STUCK, f"{where} has not ended: it is {document['status']} and at {at}")
        if document["_id"] in self._seen:
            self._note(Kind.DOUBLED, f"{where} runs and has ended at once")
        self._check_one(document, where, is_complete=False)

    def _may_be_cancelled(self, document: Json) -> bool:
        """Return whether somebody asked for it; what becomes of children is checked with their parent."""
        return document["_id"] in self.promises.cancelled or "parentInstanceId" in document

    def _check_one(self, document: Json, where: str, *, is_complete: bool) -> None:
        instance_id = document["_id"]
        self._seen[instance_id] = document["businessKey"]
        shape = self.promises.shapes.get(document["processDefinitionKey"])
        if shape is None:
            self._note(Kind.OTHER, f"{where} is of a definition that nobody deployed")
            return
        variables = {each["name"]: each.get("value") for each in document["variables"].values()}
        trail = list(_trail(variables))
        steps = self.effects.by_instance.get(instance_id, {})
        is_child = "parentInstanceId" in document
        inspector = Inspector(where, is_complete, self._children.get(instance_id, {}))
        # A child begins with the variables of its parent, and so with its trail.
        own = [entry for entry in trail if not is_child or entry.node.startswith(_prefix(document))]
        inspector.inspect(shape, own, steps)
        self.violations += inspector.violations
        self._check_entries(own, steps, where, is_complete=is_complete)
        self._check_sums(trail, variables, where)
        self._collect(document, variables, own, steps)

    def _check_entries(
        self, entries: list[Entry], steps: Steps, where: str, *, is_complete: bool
    ) -> None:
        committed: Counter[str] = Counter(entry.key for entry in entries)
        for entry in entries:
            at = f"node {entry.node} of {where}, key {entry.key}"
            calls = steps.get(entry.key)
            if committed[entry.key] > 1:
                count = committed[entry.key]
                self._note(Kind.DOUBLED, f"{at}, was committed {count} times")
            if calls is None or entry.call not in calls.ended:
                self._note(
                    Kind.OTHER, f"{at}, was committed by call {entry.call}, which never ended"
                )
            elif calls.node != entry.node:
                self._note(Kind.OTHER, f"{at}, was run for node {calls.node}")
        if not is_complete:
            return
        on_trail = {entry.node for entry in entries}
        for key, calls in steps.items():
            if calls.ended and key not in committed and calls.node in on_trail:
                self._note(
                    Kind.LOST,
                    f"node {calls.node} of {where}, key {key}, ended and was committed under another key",
                )

    def _check_sums(self, trail: list[Entry], variables: Json, where: str) -> None:
        total = sum(weight_of(entry.node) for entry in trail)
        if variables.get("total", 0) != total:
            self._note(
                Kind.OTHER,
                f"variable total of {where} is {variables.get('total')}; the committed steps give {total}",
            )
        fold: int = 0
        for entry in trail:
            if entry.node in self.promises.folding:
                fold = folded(fold, entry.node)
        if variables.get("fold") != fold:
            self._note(
                Kind.OTHER,
                f"variable fold of {where} is {variables.get('fold')}; the committed steps give {fold}",
            )

    def _collect(self, document: Json, variables: Json, entries: list[Entry], steps: Steps) -> None:
        on_trail = {entry.key for entry in entries}
        quiet = sum(bool(calls.ended) and key not in on_trail for key, calls in steps.items())
        self.committed += len(entries) + quiet
        instance_id = document["_id"]
        for name, value in variables.items():
            what, _, of = name.partition(" ")
            if what == "by":
                self.completers[instance_id, of] = str(value)
            elif what == "msg" and "parentInstanceId" not in document:
                self.received[str(value)] += 1
            elif what == "total":
                self._check_output(document, of, value)
        parent = document.get("parentInstanceId")
        if parent is None:
            self._roots[document["businessKey"]].append(instance_id)
            return
        self._collect_child(document, parent, steps, variables)

    def _collect_child(self, document: Json, parent: str, steps: Steps, variables: Json) -> None:
        siblings = self._children[parent][document["processDefinitionKey"]]
        if document["status"] == _COMPLETED:
            siblings.completed += 1
            siblings.total = variables.get("total")
        else:
            siblings.cancelled += 1
        for calls in steps.values():
            siblings.first_start = min(siblings.first_start, calls.first_start)
            if calls.ended:
                siblings.last_end = max(siblings.last_end, calls.first_end)
        starter, item = document["starterTaskId"], variables.get("item")
        if starter in self._starters:
            other = self._starters[starter]
            self._note(
                Kind.DOUBLED,
                f"{_where(document)} and instance {other} were both started by task {starter}",
            )
        self._starters[starter] = document["_id"]
        if item is not None and document["status"] == _COMPLETED:
            if item in siblings.items:
                self._note(
                    Kind.DOUBLED, f"{_where(document)} is the second child for element {item}"
                )
            siblings.items.add(item)

    def _check_output(self, document: Json, node: str, value: Any) -> None:
        """Compare what a call activity with one child gave back with what that child had at its end."""
        if not node or "parentInstanceId" in document:
            return
        found = self._children[document["_id"]].values()
        totals = [children.total for children in found if children.total is not None]
        if value not in totals:
            self._note(
                Kind.OTHER,
                f"variable total of {node} of {_where(document)} is {value}; its children had {totals}",
            )

    def _check_starts(self) -> None:
        for ref, instances in self._roots.items():
            if ref not in self.promises.refs:
                self._note(
                    Kind.OTHER, f"instance {instances[0]} with start key {ref} was never asked for"
                )
            if len(set(instances)) > 1:
                self._note(
                    Kind.DOUBLED,
                    f"start key {ref} started {len(set(instances))} instances: {', '.join(sorted(instances))}",
                )
        for ref, instance_id in self.promises.started.items():
            if instance_id not in self._seen:
                self._note(
                    Kind.LOST,
                    f"instance {instance_id} with start key {ref} was promised and is in no collection",
                )


def _trail(variables: Json) -> Iterator[Entry]:
    for place, text in enumerate(variables.get("trail") or ()):
        node, key, call = str(text).split(" ")
        yield Entry(place, node, key, call)


def weight_of(node_id: str) -> int:
    """Return what a node adds to ``total``: worked out here again, not asked of the handlers."""
    return crc32(node_id.encode()) % 1000 + 1


def folded(before: object, node_id: str) -> int:
    """Return ``fold`` after a node, from what it was before."""
    return crc32(f"{before} {node_id}".encode())


def _prefix(document: Json) -> str:
    return f"{document['processDefinitionKey']}-"


def _where(document: Json) -> str:
    return f"instance {document['_id']} ({document['businessKey']}, {document['processDefinitionKey']})"
