"""All scenarios, in the order of the page."""

from collections.abc import Mapping

from benchmarks import (
    chain,
    claiming,
    engine,
    fan_out,
    idle,
    payload,
    pick_up,
    readers,
    synchronous,
    waiting,
)
from benchmarks.plan import Scenario

_ALL = (chain, synchronous, pick_up, claiming, fan_out, waiting, engine, idle, payload, readers)

SCENARIOS: Mapping[str, Scenario] = {each.SCENARIO.name: each.SCENARIO for each in _ALL}
