"""Random processes that are right, as trees of blocks of every node type."""

from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from hypothesis import strategies as st


@dataclass(frozen=True, slots=True)
class Work:
    """A task whose handler counts its visits; the flags are commitBefore and commitAfter."""

    before: bool
    after: bool


@dataclass(frozen=True, slots=True)
class Reminder:
    """A non-interruptive timer that fires up to ``times`` times, maybe leading to the join around its host."""

    times: int
    path: "Sequence"
    to_join: bool


@dataclass(frozen=True, slots=True)
class Events:
    """What waits beside a host; each path goes on where the host's does.

    Attributes:
        kind: The provider type of the deadline and the catch event.
    """

    deadline: "Sequence | None" = None
    catch: "Sequence | None" = None
    reminder: Reminder | None = None
    kind: str = "STATIC"


@dataclass(frozen=True, slots=True)
class Wait:
    """An external task."""

    after: bool
    events: Events


@dataclass(frozen=True, slots=True)
class Delay:
    """A timer; ``kind`` is a provider type."""

    kind: str
    events: Events


@dataclass(frozen=True, slots=True)
class Catch:
    """An event catcher; ``policy`` is None for a standalone one, ``kind`` a provider type."""

    policy: str | None
    keys: int
    kind: str
    after: bool
    events: Events


@dataclass(frozen=True, slots=True)
class Rescue:
    """A task whose handler raises a process error with the code ``raised``, which the handlers may take.

    Attributes:
        raised: An index into ``handlers``, or None: the handler just works.
        catch_all: Whether the last of them takes every code.
    """

    raised: int | None
    handlers: tuple["Sequence", ...]
    catch_all: bool
    after: bool
    reminder: Reminder | None


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


@dataclass(frozen=True, slots=True)
class Meet:
    """A split in which one branch throws the messages that the other one waits for.

    Attributes:
        policy: Of a group of two keys, both of which are thrown for ALL; None for one key.
        relay: Whether the catching branch throws a message in its turn, for a third branch.
        echo: Whether the throwing branch comes from a group that would take its own message.
        commits: commitBefore of the throwers.
        keeps: Whether a message that nobody waits for yet is kept.
    """

    before_throw: "Sequence"
    before_catch: "Sequence"
    policy: str | None
    relay: bool
    echo: bool
    kind: str
    commits: bool
    keeps: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A call activity; ``mode`` is None for a single child, ``body`` is the process it calls."""

    mode: str | None
    count: int
    body: "Sequence"
    after: bool
    events: Events


Block: TypeAlias = Work | Wait | Delay | Catch | Rescue | Stop | Choice | Loop | Split | Meet | Call
Sequence: TypeAlias = tuple[Block, ...]

CHOICES = ("variable", "null", "default", "bean")
PROVIDERS = ("STATIC", "VARIABLE", "BEAN")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a process a sequence is, which decides what may be in it.

    Attributes:
        depth: How many levels of blocks may be nested in it.
        may_stop: Whether paths may end in it.
        in_loop: Paths of events end no token there, so that each round begins with as many.
        beside: Several tokens may be in it at once, so it counts no rounds.
        called: It is in a call activity, and may be in several at once.
        doomed: It may be cancelled at any moment, so nobody may have to wait for it.
    """

    depth: int
    may_stop: bool = True
    in_loop: bool = False
    beside: bool = False
    called: bool = False
    doomed: bool = False

    def inside(self, **fields: bool) -> "Place":
        return replace(self, depth=self.depth - 1, **fields)  # type: ignore[arg-type]


def processes() -> st.SearchStrategy[Sequence]:
    """Return a strategy for processes whose blocks are nested up to three levels."""
    return _sequences(Place(3), least=2, most=3)


@cache
def _sequences(place: Place, *, least: int = 0, most: int = 2) -> st.SearchStrategy[Sequence]:
    found = st.lists(st.one_of(_blocks(place)), min_size=least, max_size=most).map(tuple)
    if not place.may_stop:
        return found
    stops = st.sampled_from([False] * 4 + [True])
    return st.builds(lambda before, ends: (*before, *([Stop()] * ends)), found, stops)


def _blocks(place: Place) -> list[st.SearchStrategy[Block]]:
    flag = st.booleans()
    leaves: list[st.SearchStrategy[Block]] = [
        st.builds(Work, flag, flag),
        st.builds(Work, st.just(value=False), st.just(value=False)),
        st.builds(Wait, flag, _events(place)),
        st.builds(Delay, st.sampled_from(PROVIDERS), _events(place)),
        st.builds(
            Catch,
            st.sampled_from([None, "ALL", "ANY"]),
            st.integers(1, 3),
            st.sampled_from(PROVIDERS),
            flag,
            _events(place, catch=False),
        ),
    ]
    return leaves + _nested(place) if place.depth else leaves


def _nested(place: Place) -> list[st.SearchStrategy[Block]]:
    flag = st.booleans()
    inner = _sequences(place.inside())
    # A deploy wants one branch at least that leads to the join.
    safe = _sequences(place.inside(may_stop=False))
    free = _sequences(place.inside(may_stop=True))
    path = _sequences(place.inside(may_stop=place.may_stop and not place.in_loop))
    handlers = st.lists(path, min_size=1, max_size=3).map(tuple)
    found: list[st.SearchStrategy[Block]] = [
        st.builds(
            Choice,
            st.sampled_from(CHOICES),
            st.integers(0, 2),
            st.lists(inner, min_size=1, max_size=3).map(tuple),
        ),
        st.builds(Split, st.tuples(safe, free) | st.tuples(free, safe, free), flag),
        st.builds(
            Rescue,
            st.none() | st.integers(0, 2),
            handlers,
            flag,
            flag,
            st.none() | _reminders(place),
        ),
        _calls(place),
    ]
    if not place.beside:
        body = _sequences(place.inside(in_loop=True))
        found.append(st.builds(Loop, st.integers(1, 3), body))
    if not place.doomed:
        echo = flag if not (place.beside or place.called) else st.just(value=False)
        policies = st.sampled_from([None, "ALL", "ANY"])
        kinds = st.sampled_from(PROVIDERS)
        found.append(st.builds(Meet, safe, safe, policies, flag, echo, kinds, flag, flag))
    return found


@cache
def _calls(place: Place) -> st.SearchStrategy[Block]:
    def with_events(events: Events) -> st.SearchStrategy[Block]:
        doomed = place.doomed or events.deadline is not None
        body = Place(min(place.depth - 1, 1), called=True, doomed=doomed)
        return st.builds(
            Call,
            st.sampled_from([None, "PARALLEL", "SEQUENTIAL"]),
            st.integers(0, 3),
            _sequences(body, most=2),
            st.booleans(),
            st.just(events),
        )

    return _events(place, catch=False).flatmap(with_events)


@cache
def _events(place: Place, *, catch: bool = True) -> st.SearchStrategy[Events]:
    none = st.just(Events())
    if not place.depth:
        return none
    path = _sequences(place.inside(may_stop=place.may_stop and not place.in_loop), most=1)
    some = st.builds(
        Events,
        st.none() | path,
        st.none() | path if catch else st.none(),
        st.none() | _reminders(place),
        st.sampled_from(PROVIDERS),
    )
    return none | some


@cache
def _reminders(place: Place) -> st.SearchStrategy[Reminder]:
    path = _sequences(place.inside(may_stop=True, in_loop=False, beside=True), most=2)
    return st.builds(Reminder, st.integers(1, 3), path, st.booleans())
