"""Puts the definitions of the load together from blocks, each with the shape of what its handlers must have done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TypeAlias

from tests.chaos.load_shape import Beside, Called, Json, OneOf, Reminded, Row, Shape, Step
from tests.support.definitions import a_file, a_flow, a_node, a_start, a_task, an_end

FIRST_PAUSE_S = 0.1

Built: TypeAlias = tuple[str, Shape]
"""The id of the first node of something, and what its handlers must have done."""

Block: TypeAlias = Callable[["Builder", str], Built]
"""Adds nodes, the last of which leads to a target."""


@dataclass(frozen=True, slots=True)
class Process:
    """One definition of the load.

    Attributes:
        tasks: About how many executable and external tasks an instance has, its children included.
        waits: How people treat the external tasks of a node (``load_people``).
        kept: Nodes whose message is sent before anybody waits for it.
        children: The definitions that it calls.
    """

    key: str
    file: Json
    shape: Shape
    tasks: int
    waits: dict[str, str]
    kept: tuple[str, ...]
    children: tuple["Process", ...]

    def family(self) -> list["Process"]:
        """Return the process and all that it calls, the innermost first."""
        return [found for child in self.children for found in child.family()] + [self]


@dataclass(slots=True)
class Builder:
    """Gathers the nodes of one definition; ids begin with its key, so that no two definitions share one.

    Attributes:
        is_alone: Nothing runs beside the path that is being built.
    """

    key: str
    nodes: list[Json] = field(default_factory=list)
    tasks: int = 0
    waits: dict[str, str] = field(default_factory=dict)
    kept: list[str] = field(default_factory=list)
    children: list[Process] = field(default_factory=list)
    is_alone: bool = True
    _numbers: "count[int]" = field(default_factory=count)

    def name(self, prefix: str) -> str:
        """Return a new node id."""
        return f"{self.key}-{prefix}{next(self._numbers)}"

    def add(
        self, node_id: str, node_type: str, *targets: str | Json, tasks: int = 1, **fields: object
    ) -> str:
        """Add a node that makes about ``tasks`` rows; return its id."""
        self.tasks += tasks
        self.nodes.append(a_node(node_id, node_type, *targets, **fields))
        return node_id

    def step(self, target: str, do: str = "", *, commits: bool = True, **fields: object) -> Step:
        """Add a handler; one that is not quiet and that nothing runs beside folds."""
        node_id = self.name("S")
        if self.is_alone and "quiet" not in do:
            do = f"{do} fold"
        executor = fields.pop("executor", "chaos_step")
        properties = {"chaos.do": do}
        self.tasks += 1
        chosen: Json = {"commitBefore": commits, "extensionProperties": properties, **fields}
        self.nodes.append(a_task(node_id, target, executor=executor, **chosen))
        return Step(node_id, is_quiet="quiet" in do, folds="fold" in do)

    def row(self, blocks: Sequence[Block], target: str) -> Built:
        """Add blocks one after another, the last of which leads to ``target``."""
        parts: list[Shape] = []
        for block in reversed(blocks):
            target, shape = block(self, target)
            parts.insert(0, shape)
        return target, parts[0] if len(parts) == 1 else Row(tuple(parts))

    def beside(self, blocks: Sequence[Block], target: str) -> tuple[list[str], Shape]:
        """Add blocks that run beside each other and all lead to ``target``; return their first nodes."""
        alone, self.is_alone = self.is_alone, False
        built = [block(self, target) for block in blocks]
        self.is_alone = alone
        return [entry for entry, _ in built], Beside(tuple(shape for _, shape in built))


def process(key: str, *blocks: Block) -> Process:
    """Return a definition of these blocks."""
    builder = Builder(key)
    entry, shape = builder.row(blocks, "END")
    file = a_file(a_start(entry), *builder.nodes, an_end(), key=key)
    children = tuple(builder.children)
    tasks = builder.tasks
    waits, kept = builder.waits, tuple(builder.kept)
    return Process(key, file, shape, tasks, waits, kept, children)


# --- blocks


def step(do: str = "", *, commits: bool = True, **fields: object) -> Block:
    """One handler."""

    def block(builder: Builder, target: str) -> Built:
        built = builder.step(target, do, commits=commits, **fields)
        return built.node, built

    return block


def chain(length: int, *, counted_every: int = 1, commits: bool = True) -> Block:
    """Handlers one after another; all but every so many of them are quiet."""

    def block(builder: Builder, target: str) -> Built:
        words = ["" if index % counted_every == 0 else "quiet" for index in range(length)]
        return builder.row([step(do, commits=commits) for do in words], target)

    return block


def fan(width: int, *branches: Block) -> Block:
    """A split; its branches are ``branches`` in turn, a quiet handler by default but for every fourth."""

    def block(builder: Builder, target: str) -> Built:
        join = builder.name("JOIN")
        chosen = [
            branches[index % len(branches)] if branches else step("" if index % 4 == 0 else "quiet")
            for index in range(width)
        ]
        entries, shape = builder.beside(chosen, join)
        builder.add(join, "JOIN_GATEWAY", target)
        split = builder.name("SPLIT")
        builder.add(split, "PARALLEL_GATEWAY", *entries, tasks=0, targetJoinId=join)
        return split, shape

    return block


def several(*blocks: Block) -> Block:
    """Blocks one after another, as one branch."""
    return lambda builder, target: builder.row(blocks, target)


def timer(seconds: float) -> Block:
    """A wait for some time, then a handler."""

    def block(builder: Builder, target: str) -> Built:
        after = builder.step(target, commits=False)
        due = {"providerType": "STATIC", "staticValue": f"PT{seconds:g}S"}
        return builder.add(builder.name("TIMER"), "TIMER_TASK", after.node, **due), after

    return block


def person(how: str) -> Block:
    """An external task that people treat as ``how`` says (``load_people``), then a handler."""

    def block(builder: Builder, target: str) -> Built:
        after = builder.step(target, commits=False)
        node_id = builder.add(builder.name("WAIT"), "EXTERNAL_TASK", after.node)
        builder.waits[node_id] = how
        return node_id, after

    return block


def deadline(seconds: float, host: str) -> Block:
    """A host and a timer that ends it, at about the same time; each leads to a handler of its own.

    Args:
        host: ``person``, ``timer``, ``catcher``, or ``children``.
    """

    def block(builder: Builder, target: str) -> Built:
        won, lost = builder.step(target), builder.step(target)
        host_id, event_id = builder.name("HOST"), builder.name("DEADLINE")
        due = {"providerType": "STATIC", "staticValue": f"PT{seconds:g}S"}
        builder.add(
            event_id, "BOUNDARY_INTERRUPTIVE_TIMER", lost.node, attachedToRef=host_id, **due
        )
        events = {"boundaryEventIds": [event_id]}
        match host:
            case "person":
                builder.add(host_id, "EXTERNAL_TASK", won.node, **events)
                builder.waits[host_id] = f"by {seconds:g}"
            case "timer":
                builder.add(host_id, "TIMER_TASK", won.node, **due, **events)
            case "children":
                busy = timer(seconds / 4)
                child = process(f"{builder.key}-c{next(builder._numbers)}", step(), busy)
                builder.children.append(child)
                builder.tasks += 2 * (child.tasks + 1)
                builder.add(
                    host_id,
                    "CALL_ACTIVITY_COORDINATOR",
                    won.node,
                    calledElement=child.key,
                    collectionVariable="pair",
                    elementVariable="item",
                    iterationMode="PARALLEL",
                    **events,
                )
                return host_id, OneOf(
                    (
                        Row((Called(host_id, child.key, 2), won)),
                        Row((Called(host_id, child.key, 2, is_doomed=True), lost)),
                    )
                )
            case _:
                kinds = {"catchType": "STANDALONE", **_key_of(host_id)}
                builder.add(host_id, "EVENT_CATCHER", won.node, **kinds, **events)
                builder.waits[host_id] = f"by {seconds:g}"
        return host_id, OneOf((won, lost))

    return block


def catch_event(seconds: float) -> Block:
    """A person's task and a message that ends it, at about the same time."""

    def block(builder: Builder, target: str) -> Built:
        won, lost = builder.step(target), builder.step(target)
        host_id, event_id = builder.name("HOST"), builder.name("EVENT")
        builder.add(
            event_id,
            "BOUNDARY_INTERRUPTIVE_CATCH_EVENT",
            lost.node,
            attachedToRef=host_id,
            **_key_of(event_id),
        )
        builder.add(host_id, "EXTERNAL_TASK", won.node, boundaryEventIds=[event_id])
        builder.waits |= {host_id: f"by {seconds:g}", event_id: f"by {seconds:g}"}
        return host_id, OneOf((won, lost))

    return block


def reminded(seconds: float, most: int, host: str) -> Block:
    """A host with reminders beside it: a ``person``, or a ``handler`` that takes its time; then a handler."""

    def block(builder: Builder, target: str) -> Built:
        after = builder.step(target)
        event_id = builder.name("REMINDER")
        alone, builder.is_alone = builder.is_alone, False
        reminder = builder.step("END")
        builder.is_alone = alone
        lasts = seconds * most
        policy = {
            "type": "RATE_DURATION",
            "expression": f"PT{seconds:g}S",
            "maxOccurrences": most,
        }
        before: tuple[Shape, ...] = ()
        if host == "person":
            host_id = builder.name("HOST")
            builder.add(host_id, "EXTERNAL_TASK", after.node, boundaryEventIds=[event_id])
            builder.waits[host_id] = f"by {lasts:g}"
        else:
            slow = builder.step(after.node, f"sleep={lasts:g}", boundaryEventIds=[event_id])
            host_id, before = slow.node, (slow,)
        builder.add(
            event_id,
            "BOUNDARY_NON_INTERRUPTIVE_TIMER",
            reminder.node,
            tasks=most,
            attachedToRef=host_id,
            schedulePolicy=policy,
        )
        return host_id, Row((Reminded(reminder.node, most), *before, after))

    return block


def message(*, kept: bool = False) -> Block:
    """A wait for one key, whose message comes later, or before anybody waits for it; then a handler."""

    def block(builder: Builder, target: str) -> Built:
        after = builder.step(target, commits=False)
        node_id = builder.name("CATCH")
        builder.add(
            node_id, "EVENT_CATCHER", after.node, catchType="STANDALONE", **_key_of(node_id)
        )
        if kept:
            builder.kept.append(node_id)
        builder.waits[node_id] = "kept" if kept else "message"
        return node_id, after

    return block


def messages(policy: str) -> Block:
    """A wait for all or any of three keys, then a handler."""

    def block(builder: Builder, target: str) -> Built:
        after = builder.step(target, commits=False)
        node_id = builder.name("GROUP")
        kinds = {"catchType": "GROUP", "matchPolicy": policy}
        keys = _key_of(node_id, "refs")
        builder.add(node_id, "EVENT_CATCHER", after.node, tasks=4, **kinds, **keys)
        builder.waits[node_id] = "message"
        return node_id, after

    return block


def meeting() -> Block:
    """A split of which one branch throws the message that the other one waits for, whichever comes first."""

    def block(builder: Builder, target: str) -> Built:
        catch_id = builder.name("CATCH")
        key = _key_of(catch_id)

        def catching(builder: Builder, target: str) -> Built:
            after = builder.step(target, commits=False)
            builder.add(catch_id, "EVENT_CATCHER", after.node, catchType="STANDALONE", **key)
            builder.waits[catch_id] = "thrown"
            return catch_id, after

        def throwing(builder: Builder, target: str) -> Built:
            throw_id = builder.name("THROW")
            keeps = {"extensionProperties": {"kikwiflow.keepFor": "PT2H"}}
            builder.add(throw_id, "EVENT_THROWER", target, commitBefore=True, **keeps, **key)
            return builder.row([step()], throw_id)

        return fan(2, throwing, catching)(builder, target)

    return block


def call(count: int, mode: str | None, *blocks: Block) -> Block:
    """A call activity of ``count`` children, then a handler; a single child gives its ``fold`` back."""

    def block(builder: Builder, target: str) -> Built:
        after = builder.step(target)
        node_id = builder.name("CALL")
        child = process(f"{builder.key}-c{next(builder._numbers)}", *blocks)
        builder.children.append(child)
        builder.tasks += count * (child.tasks + 1)
        source: Json = {"calledElement": child.key}
        if mode is None:
            outputs = f"total=total of {node_id}"
            source["extensionProperties"] = {"kikwiflow.outputs": outputs}
        else:
            source |= {
                "collectionVariable": f"items{count}",
                "elementVariable": "item",
                "iterationMode": mode,
            }
        builder.add(node_id, "CALL_ACTIVITY_COORDINATOR", after.node, **source)
        return node_id, Row((Called(node_id, child.key, count), after))

    return block


def failing(times: int) -> Block:
    """A handler whose first attempts fail."""
    interval = f"PT{FIRST_PAUSE_S:g}S"
    policy = {"strategy": "LINEAR", "maxRetries": times + 1, "intervals": [interval]}
    return step(f"fail={times}", retryPolicy=policy)


def rescued() -> Block:
    """A handler that raises a business error, and what takes over."""

    def block(builder: Builder, target: str) -> Built:
        never, after = builder.name("S"), builder.step(target, commits=False)
        event_id, other_id = builder.name("ERROR"), builder.name("ERROR")
        raising = builder.step(target, "code=LATE", boundaryEventIds=[other_id, event_id])
        builder.nodes.append(a_task(never, target, executor="chaos_step"))
        for each, code, to in ((event_id, "LATE", after.node), (other_id, "OTHER", never)):
            builder.add(
                each,
                "BOUNDARY_ERROR_HANDLER",
                to,
                tasks=0,
                attachedToRef=raising.node,
                errorCode=code,
            )
        return raising.node, Row((raising, after))

    return block


def choice(*blocks: Block) -> Block:
    """A gateway that takes the way that the variable ``way`` names; the verifier accepts exactly one of them."""

    def block(builder: Builder, target: str) -> Built:
        built = [each(builder, target) for each in blocks]
        flows = [
            a_flow(entry, expectedAnswer=str(index), isDefault=index == 0)
            for index, (entry, _) in enumerate(built)
        ]
        source = {"providerType": "VARIABLE", "providerVariable": "way"}
        node_id = builder.add(
            builder.name("CHOICE"), "EXCLUSIVE_GATEWAY", *flows, tasks=0, **source
        )
        return node_id, OneOf(tuple(shape for _, shape in built))

    return block


def key_for(node_id: str, ref: str) -> str:
    """Return the correlation key that a node of the instance ``ref`` waits for."""
    return f"{node_id}:{ref}"


def _key_of(node_id: str, variable: str = "ref") -> dict[str, str]:
    prefix = key_for(node_id, "")
    return {"providerType": "VARIABLE", "providerVariable": variable, "keyPrefix": prefix}
