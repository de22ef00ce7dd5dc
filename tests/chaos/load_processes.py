"""The definitions of the load, made by code from a seed."""

import random

from tests.chaos.load_builder import (
    Block,
    Process,
    call,
    catch_event,
    chain,
    choice,
    deadline,
    failing,
    fan,
    meeting,
    message,
    messages,
    person,
    process,
    reminded,
    rescued,
    several,
    step,
    timer,
)

MIXED = 16
"""How many definitions are put together at random."""

COLLECTIONS = (3, 12)
"""Sizes of the collections that call activities run through."""

WAYS = 3
"""Ways out of a gateway."""

Weighted = tuple[int, Process]
"""A definition, and how many of all starts are of it."""


def processes(seed: int) -> list[Weighted]:
    """Return the definitions that instances are started of, each with how often out of all."""
    rng = random.Random(f"definitions {seed}")
    found = [
        (30, process("chain", chain(20, counted_every=3))),
        (10, process("inline", chain(4, commits=False), chain(8), chain(4, commits=False))),
        (20, process("fan8", step(), fan(8, chain(3, counted_every=3), chain(2)), step())),
        (14, process("fan32", step(), fan(32), step())),
        (10, process("fan64", step(), fan(64), step())),
        (8, process("nested", fan(4, fan(4), several(chain(3, counted_every=2), fan(6))), step())),
        (6, process("seldom", step(), step(executor="chaos_seldom_step"), fan(4), step())),
        (6, process("longer", step(), timer(1), chain(3), timer(2), chain(3), person("once"))),
        (3, process("in-turn", step(), call(3, "SEQUENTIAL", chain(3)), step())),
        (3, process("at-once", step(), call(12, "PARALLEL", chain(2), timer(0.2)), step())),
        (1, process("fan256", step(), fan(256), step())),
    ]
    mixed = [(4, process(f"mixed{index}", *_mixture(rng))) for index in range(MIXED)]
    return found + mixed


def wide() -> Process:
    """Return the definition with the widest split, of which each run starts a few."""
    return process("fan1000", step(), fan(1000), step())


def variables(rng: random.Random, ref: str) -> dict[str, object]:
    """Return what an instance is started with."""
    items = {f"items{size}": list(range(size)) for size in COLLECTIONS}
    refs = [f"{ref}-{index}" for index in range(3)]
    return {
        "ref": ref,
        "refs": refs,
        "pair": [0, 1],
        "way": str(rng.randrange(WAYS)),
        "fold": 0,
        **items,
    }


def _mixture(rng: random.Random) -> list[Block]:
    """Return three to five blocks of different kinds, with handlers between them."""
    kinds = rng.sample(_blocks(rng), rng.randint(3, 5))
    found: list[Block] = [step()]
    for kind in kinds:
        found += [kind, step()]
    if rng.random() < 0.3:
        host = rng.choice(["person", "handler"])
        found += [reminded(round(rng.uniform(0.1, 0.5), 2), rng.randint(1, 3), host), step()]
    return found


def _blocks(rng: random.Random) -> list[Block]:
    soon = round(rng.uniform(0.1, 0.6), 2)
    return [
        chain(rng.randint(3, 8), counted_every=rng.randint(1, 3)),
        fan(rng.choice([2, 3, 5, 16]), step(), chain(2), timer(soon)),
        fan(2, fan(rng.randint(2, 5)), several(step(), fan(3, chain(2)), step())),
        fan(3, deadline(soon, "person"), person("once"), failing(1)),
        timer(rng.choice([0.1, 0.5, 1.5, 3])),
        deadline(soon, "person"),
        deadline(soon, "catcher"),
        deadline(soon, "timer"),
        deadline(soon, "children"),
        catch_event(soon),
        person("once"),
        person("twice"),
        person("rivals"),
        message(),
        message(kept=True),
        messages("ALL"),
        messages("ANY"),
        meeting(),
        call(1, None, chain(2), fan(3), person("once")),
        call(3, "PARALLEL", chain(2), failing(1)),
        call(3, "SEQUENTIAL", step(), timer(0.1)),
        failing(rng.randint(1, 2)),
        rescued(),
        choice(chain(2), fan(3), timer(soon)),
    ]
