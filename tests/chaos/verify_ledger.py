"""What the load asked for and what it was promised, read from its ledger."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.load_ledger import read_ledger
from tests.chaos.load_shape import Beside, Called, OneOf, Reminded, Row, Shape, Step, decode


@dataclass(slots=True)
class Promises:
    """The ledger, sorted.

    Attributes:
        shapes: What has to be done by instances of each definition.
        folding: The nodes whose handler folds.
        refs: The start keys that were asked for, and the definition of each.
        started: The instance that each start key was promised.
        cancelled: Instances that were to be cancelled.
        completers: Who was asked to complete each external task.
        done: Who was promised that they had.
        where: The instance and the node of each external task that was to be completed.
        messages: The messages that were sent.
        delivered: Those whose delivery was promised.
        incidents: Their types and messages by id, as people found them.
    """

    shapes: dict[str, Shape] = field(default_factory=dict)
    folding: set[str] = field(default_factory=set)
    refs: dict[str, str] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)
    cancelled: set[str] = field(default_factory=set)
    completers: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    done: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    where: dict[str, tuple[str, str]] = field(default_factory=dict)
    messages: set[str] = field(default_factory=set)
    delivered: set[str] = field(default_factory=set)
    incidents: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def incident_types(self) -> dict[str, int]:
        """How many incidents of each type people found."""
        return dict(Counter(kind for kind, _ in self.incidents.values()))


def read_promises(path: Path) -> Promises:
    """Read the ledger at ``path``."""
    found = Promises()
    for line in read_ledger(path):
        match line:
            case {"op": "definition", "key": key, "shape": shape}:
                found.shapes[key] = decode(shape)
                found.folding |= {step.node for step in steps_of(found.shapes[key]) if step.folds}
            case {"op": "start", "ref": ref, "key": key}:
                found.refs[ref] = key
            case {"op": "started", "ref": ref, "instance": instance}:
                found.started[ref] = instance
            case {"op": "cancel", "instance": instance}:
                found.cancelled.add(instance)
            case {"op": "complete", "task": task, "by": person}:
                found.completers[task].add(person)
                found.where[task] = (line["instance"], line["node"])
            case {"op": "completed", "task": task, "by": person, "answer": "done"}:
                found.done[task].append(person)
            case {"op": "send", "message": message}:
                found.messages.add(message)
            case {"op": "sent", "message": message, "answer": "delivered"}:
                found.delivered.add(message)
            case {"op": "incident", "incident": incident}:
                words = f"{line['message']} at node {line['node']} of instance {line['instance']}"
                found.incidents[incident] = (line["type"], words)
            case _:
                pass
    return found


def steps_of(shape: Shape) -> Iterator[Step]:
    """Yield the handlers of a shape; those beside it do not fold and are left out."""
    match shape:
        case Step():
            yield shape
        case Row(parts) | Beside(parts) | OneOf(parts):
            for part in parts:
                yield from steps_of(part)
        case Reminded() | Called():
            return
