"""Random processes that are right, as trees of blocks: what they look like as a file, and what running them comes to."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeAlias

from hypothesis import strategies as st

from kikwiflow_worker.model.definition import ProcessDefinition
from tests.support.definitions import Json, a_file, a_flow, a_node, a_start, a_task, an_end, read


@dataclass(frozen=True, slots=True)
class Work:
    """A task whose handler counts its visits; the flags are commitBefore and commitAfter."""

    before: bool
    after: bool


@dataclass(frozen=True, slots=True)
class Wait:
    """An external task."""

    after: bool


@dataclass(frozen=True, slots=True)
class Delay:
    """A timer; ``kind`` is a provider type."""

    kind: str


@dataclass(frozen=True, slots=True)
class Stop:
    """An end event: the path ends, within a split only the branch."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A gateway that takes the option ``taken``; ``kind`` says where its answer comes from."""

    kind: str
    taken: int
    options: tuple["Sequence", ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs its body ``times`` times, as a counting handler and a gateway have it."""

    times: int
    body: "Sequence"


@dataclass(frozen=True, slots=True)
class Split:
    """Branches that run at once and meet; an empty one leads straight to the join."""

    branches: tuple["Sequence", ...]
    after: bool


Block: TypeAlias = Work | Wait | Delay | Stop | Choice | Loop | Split
Sequence: TypeAlias = tuple[Block, ...]

CHOICES = ("variable", "null", "default", "bean")


def processes() -> st.SearchStrategy[Sequence]:
    """Return a strategy for processes whose blocks are nested up to three levels."""
    return _sequences(3, may_stop=True, min_size=2)


def _sequences(depth: int, *, may_stop: bool, min_size: int = 0) -> st.SearchStrategy[Sequence]:
    flag = st.booleans()
    blocks: list[st.SearchStrategy[Block]] = [
        st.builds(Work, flag, flag),
        st.builds(Work, st.just(value=False), st.just(value=False)),
        st.builds(Wait, flag),
        st.builds(Delay, st.sampled_from(["STATIC", "VARIABLE", "BEAN"])),
    ]
    if depth:
        inner = _sequences(depth - 1, may_stop=may_stop)
        # A deploy wants one branch at least that leads to the join.
        safe = _sequences(depth - 1, may_stop=False)
        free = _sequences(depth - 1, may_stop=True)
        branches = st.tuples(safe, free) | st.tuples(free, safe, free)
        options = st.lists(inner, min_size=1, max_size=3).map(tuple)
        blocks += [
            st.builds(Choice, st.sampled_from(CHOICES), st.integers(0, 2), options),
            st.builds(Loop, st.integers(1, 3), inner),
            st.builds(Split, branches, flag),
            st.builds(Split, branches, flag),
            st.builds(Split, branches, flag),
        ]
    found = st.lists(st.one_of(blocks), min_size=min_size, max_size=3).map(tuple)
    if not may_stop:
        return found
    stops = st.sampled_from([False] * 4 + [True])
    return st.builds(lambda before, ends: (*before, *([Stop()] * ends)), found, stops)


class ProcessBuilder:
    """Turns a process into a definition; remembers how its user code has to answer.

    Attributes:
        variables: What the instance is to be started with.
        answers: The answer of each answer provider.
        handlers: What each handler does: ``work``, ``reset`` or ``count``, and the variable it does it to.
        providers: The stored form of every capability that is no task handler.
    """

    def __init__(self, process: Sequence) -> None:
        self.variables: dict[str, object] = {"sla": "PT30M"}
        self.answers: dict[str, str] = {}
        self.handlers: dict[str, tuple[str, str]] = {}
        self.providers: set[str] = {"due_date_provider:sla"}
        self._nodes: list[Json] = []
        self._numbers: Iterator[int] = count()
        self.expected: Counter[str] = Counter()
        entry, names = self._sequence(process, "END")
        self.definition: ProcessDefinition = read(
            a_file(a_start(entry), *self._nodes, an_end(), key="random")
        ).deployed(definition_id="random:1", version=1)
        self.expected = visits(names)

    def _id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers)}"

    def _sequence(self, blocks: Sequence, target: str) -> tuple[str, "Named"]:
        """Add the nodes of ``blocks``, the last of which leads to ``target``; return the first one's id."""
        named: list[Named] = []
        for block in reversed(blocks):
            target, name = self._block(block, target)
            named.insert(0, name)
        return target, ("sequence", tuple(named))

    def _block(self, block: Block, target: str) -> tuple[str, "Named"]:
        match block:
            case Work(before, after):
                node_id = self._handler("work", target, commitBefore=before, commitAfter=after)
                return node_id, ("visit", node_id)
            case Wait(after):
                node_id = self._id("WAIT")
                self._nodes.append(a_node(node_id, "EXTERNAL_TASK", target, commitAfter=after))
                return node_id, ("visit", node_id)
            case Delay(kind):
                node_id = self._id("DELAY")
                source = {
                    "providerType": kind,
                    "staticValue": "PT1H",
                    "providerVariable": "sla",
                    "providerBean": "sla",
                }
                self._nodes.append(a_node(node_id, "TIMER_TASK", target, **source))
                return node_id, ("visit", node_id)
            case Stop():
                node_id = self._id("STOP")
                self._nodes.append(an_end(node_id))
                return node_id, ("stop", node_id)
            case Choice():
                return self._choice(block, target)
            case Loop():
                return self._loop(block, target)
            case Split():
                return self._split(block, target)

    def _handler(self, action: str, target: str, variable: str = "", **fields: object) -> str:
        node_id = self._id(action.upper())
        self.handlers[node_id] = (action, variable or f"ran_{node_id}")
        self._nodes.append(a_task(node_id, target, executor=node_id, **fields))
        return node_id

    def _choice(self, block: Choice, target: str) -> tuple[str, "Named"]:
        node_id = self._id("CHOICE")
        taken = block.taken % len(block.options)
        built = [self._sequence(option, target) for option in block.options]
        flows = [
            a_flow(entry, expectedAnswer=f"option {index}")
            for index, (entry, _) in enumerate(built)
        ]
        source: Json = {"providerType": "VARIABLE", "providerVariable": node_id}
        match block.kind:
            case "null":
                flows[taken] = a_flow(built[taken][0], handlesNull=True)
            case "default":
                flows[taken] = a_flow(built[taken][0], isDefault=True)
                self.variables[node_id] = 7.5
            case "bean":
                source = {"providerType": "BEAN", "providerBean": node_id}
                self.answers[node_id] = f"option {taken}"
                self.providers.add(f"answer_provider:{node_id}")
            case _:
                self.variables[node_id] = f"option {taken}"
        self._nodes.append(a_node(node_id, "EXCLUSIVE_GATEWAY", *flows, **source))
        return node_id, built[taken][1]

    def _loop(self, block: Loop, target: str) -> tuple[str, "Named"]:
        variable = self._id("round_")
        gateway = self._id("AGAIN")
        count_id = self._handler("count", gateway, variable)
        entry, body = self._sequence(block.body, count_id)
        out = a_flow(target, expectedAnswer=str(block.times))
        self._nodes.append(
            a_node(
                gateway,
                "EXCLUSIVE_GATEWAY",
                out,
                a_flow(entry, isDefault=True),
                providerType="VARIABLE",
                providerVariable=variable,
            )
        )
        reset_id = self._handler("reset", entry, variable)
        once: Named = ("sequence", (body, ("visit", count_id)))
        return reset_id, ("sequence", (("visit", reset_id), *([once] * block.times)))

    def _split(self, block: Split, target: str) -> tuple[str, "Named"]:
        split_id, join_id = self._id("SPLIT"), self._id("JOIN")
        built = [self._sequence(branch, join_id) for branch in block.branches]
        entries = [entry for entry, _ in built]
        self._nodes.append(a_node(split_id, "PARALLEL_GATEWAY", *entries, targetJoinId=join_id))
        self._nodes.append(a_node(join_id, "JOIN_GATEWAY", target, commitAfter=block.after))
        return split_id, ("branches", tuple(name for _, name in built))


Named: TypeAlias = "tuple[str, str | tuple[Named, ...]]"
"""What one token does: visit a node, stop, follow a sequence, or become several that meet."""


def visits(named: Named) -> Counter[str]:
    """Return how often a token that does this visits each task, wait and timer: the meaning, without any engine."""
    return _visits(named)[0]


def _visits(named: Named) -> tuple[Counter[str], bool]:
    """Return the visits, and whether the token stopped on the way."""
    kind, detail = named
    if isinstance(detail, str):
        return (Counter([detail]), False) if kind == "visit" else (Counter(), True)
    total: Counter[str] = Counter()
    for part in detail:
        found, stopped = _visits(part)
        total += found
        if stopped and kind == "sequence":
            return total, True
    return total, False
