"""``python -m benchmarks.tabs URL --readers N --interval-s S --seconds T PATH ...``: open tabs that look again and again.

Each reader keeps its own connection and asks for its page every ``--interval-s`` seconds, as a tab of the dashboard does
while something happens; readers begin spread over the first interval. Prints what they got as JSON.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import httpx


@dataclass(slots=True)
class Looks:
    """What all readers together got.

    Attributes:
        seconds: How long each answer took.
        refused: Answers that were no page.
    """

    seconds: list[float] = field(default_factory=list)
    refused: int = 0


async def _read(
    url: str, *, offset_s: float, interval_s: float, until: float, looks: Looks
) -> None:
    loop = asyncio.get_running_loop()
    next_at = loop.time() + offset_s
    async with httpx.AsyncClient(timeout=30, verify=False) as client:
        while next_at < until:
            await asyncio.sleep(max(0.0, next_at - loop.time()))
            began = time.monotonic()
            answer = await client.get(url)
            looks.seconds.append(time.monotonic() - began)
            looks.refused += answer.status_code != httpx.codes.OK
            next_at += interval_s


async def _run(given: argparse.Namespace) -> Looks:
    looks, paths = Looks(), given.paths
    until = asyncio.get_running_loop().time() + given.seconds
    async with asyncio.TaskGroup() as group:
        for number in range(given.readers):
            reader = _read(
                given.url + paths[number % len(paths)],
                offset_s=given.interval_s * number / given.readers,
                interval_s=given.interval_s,
                until=until,
                looks=looks,
            )
            group.create_task(reader)
    return looks


def main() -> None:
    """Read as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("paths", nargs="+")
    parser.add_argument("--readers", type=int, required=True)
    parser.add_argument("--interval-s", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    looks = asyncio.run(_run(parser.parse_args()))
    print(json.dumps(_summary(looks.seconds, looks.refused)))


def _summary(seconds: Sequence[float], refused: int) -> dict[str, float]:
    ordered = sorted(seconds) or [0.0]
    return {
        "count": len(seconds),
        "refused": refused,
        "median_s": median(ordered),
        "p95_s": ordered[int(0.95 * (len(ordered) - 1))],
    }


if __name__ == "__main__":
    main()
