"""What tokens do, without any engine: how often each node is passed, as far as races have been seen to go."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Pass:
    """Every token passes this node once."""

    name: str


@dataclass(frozen=True, slots=True)
class Halt:
    """The token ends here."""


@dataclass(frozen=True, slots=True)
class Steps:
    """One after the other."""

    parts: tuple["Flow", ...]


@dataclass(frozen=True, slots=True)
class Rounds:
    """The body so many times, unless a token ends in it; races in it end no token."""

    times: int
    body: "Flow"


@dataclass(frozen=True, slots=True)
class Branches:
    """Every token becomes one for each branch; they meet, wherever they end, and go on as one."""

    parts: tuple["Flow", ...]


@dataclass(frozen=True, slots=True)
class Side:
    """A path that begins up to ``times`` times beside each token at a host."""

    name: str
    times: int
    path: "Flow"


@dataclass(frozen=True, slots=True)
class Race:
    """Every token passes the host or one of the events, whoever is first; beside it reminders fire."""

    host: str
    events: tuple[tuple[str, "Flow"], ...]
    side: Side | None


@dataclass(frozen=True, slots=True)
class Children:
    """Every token that passes the coordinator has waited for the end of ``count`` children.

    Attributes:
        doomed: Whether an instance above may be cancelled.
    """

    race: Race
    definition_key: str
    count: int
    child: "Flow"
    doomed: bool


Flow: TypeAlias = Pass | Halt | Steps | Rounds | Branches | Race | Children


class Ledger:
    """Compares what was seen with what tokens do.

    Attributes:
        expected: How often each node is passed.
        wrong: What cannot have happened.
    """

    def __init__(self, seen: Mapping[str, int], ended: Mapping[str, int]) -> None:
        self._seen = Counter(seen)
        self._ended = Counter(ended)
        self.expected: Counter[str] = Counter()
        self.wrong: list[str] = []

    def follow(self, flow: Flow, tokens: int) -> int:
        """Note what ``tokens`` do in a flow; return how many leave it."""
        match flow:
            case Pass(name):
                self.expected[name] += tokens
                return tokens
            case Halt():
                return 0
            case Steps(parts):
                for part in parts:
                    tokens = self.follow(part, tokens)
                return tokens
            case Rounds(times, body):
                if ends(body):
                    return self.follow(body, tokens)
                self.follow(body, tokens * times)
                return tokens
            case Branches(parts):
                for part in parts:
                    self.follow(part, tokens)
                return tokens
            case Race():
                return self._race(flow, tokens)
            case Children():
                return self._children(flow, tokens)

    def _race(self, race: Race, tokens: int) -> int:
        names = [race.host, *(name for name, _ in race.events)]
        decided = {name: self._seen[name] for name in names}
        if sum(decided.values()) != tokens:
            self.wrong.append(f"{tokens} tokens came to {race.host} and went on as {decided}")
        self.expected.update(decided)
        going_on = decided[race.host]
        for name, path in race.events:
            going_on += self.follow(path, decided[name])
        if race.side is not None:
            fired = self._seen[race.side.name]
            if fired > race.side.times * tokens:
                self.wrong.append(f"{race.side.name} fired {fired} times for {tokens} hosts")
            self.expected[race.side.name] += fired
            self.follow(race.side.path, fired)
        return going_on

    def _children(self, call: Children, tokens: int) -> int:
        left = self._race(call.race, tokens)
        ended = self._ended[call.definition_key]
        least = call.count * self._seen[call.race.host]
        interrupted = bool(call.race.events) and self._seen[call.race.host] < tokens
        most = call.count * tokens
        if ended < least or (not call.doomed and ended > most):
            self.wrong.append(f"{ended} children of {call.race.host} ended, for {tokens} tokens")
        if not interrupted and not call.doomed and ended != most:
            self.wrong.append(f"{ended} children of {call.race.host} ended instead of {most}")
        self.follow(call.child, ended)
        return left


def ends(flow: Flow) -> bool:
    """Return whether every token ends in a flow, whatever happens."""
    match flow:
        case Halt():
            return True
        case Steps(parts):
            return any(ends(part) for part in parts)
        case Rounds(_, body):
            return ends(body)
        case _:
            return False
