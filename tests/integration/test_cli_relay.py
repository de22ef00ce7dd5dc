"""The commands that run and look after the relay, over a real replica set."""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest
from click.testing import Result
from pymongo.database import Database
from structlog.testing import capture_logs

from kikwiflow_worker.cli import relaying
from kikwiflow_worker.cli.relaying import Relaying
from kikwiflow_worker.errors import StoreUnavailableError
from kikwiflow_worker.relay.sinks import RefusedError
from kikwiflow_worker.settings import Settings
from tests.support.cli import CommandLine, restored_logging
from tests.support.mongo import MongoServer
from tests.support.relay import SINK, ListSink, RelayBench, bench
from tests.support.stores import Json

__all__ = ["bench", "restored_logging"]

pytestmark = [pytest.mark.mongo, pytest.mark.usefixtures("restored_logging")]


@pytest.fixture
def commands(mongo_server: MongoServer, data: Database[Json]) -> CommandLine:
    return CommandLine(KIKWIFLOW_MONGODB_URI=mongo_server.uri, KIKWIFLOW_MONGODB_DATABASE=data.name)


async def refuse(_: object) -> None:
    raise RefusedError("the receiver answered 422")


async def with_dead_letters(bench: RelayBench) -> None:
    """Leave a dead letter and what it holds, in each of two instances."""
    for instance in ("I-1", "I-2"):
        await bench.put(f"{instance}-dead", f"{instance}-next", instance=instance)
    await bench.relay(ListSink(refuse), most_strikes=1).run_until_idle()


async def run(commands: CommandLine, *arguments: str) -> Result:
    """Run a command in a thread: it has an event loop of its own."""
    return await asyncio.to_thread(commands.run, *arguments)


async def test_status_says_where_events_go_and_what_waits(
    bench: RelayBench, commands: CommandLine
) -> None:
    await with_dead_letters(bench)
    shown = (await run(commands, "events", "status")).stdout
    told = json.loads((await run(commands, "events", "status", "--json")).stdout)

    assert shown.splitlines()[0].split() == ["sink", "list"]
    assert told["counts"] == {"PENDING": 0, "RETRYING": 0, "HELD": 2, "DEAD": 2}
    assert len(told["slices"]) == 16


async def test_dead_letters_are_listed_with_the_reason_and_no_payload(
    bench: RelayBench, commands: CommandLine
) -> None:
    await with_dead_letters(bench)
    shown = (await run(commands, "events", "list")).stdout
    told = json.loads((await run(commands, "events", "list", "--limit", "1", "--json")).stdout)

    assert shown.count("the receiver answered 422") == 2
    assert "acme" not in shown
    assert [(one["id"], one["payload"]["tenantId"]) for one in told["items"]] == [
        ("I-1-dead", "acme")
    ]
    assert told["next_cursor"]


async def test_dead_letters_are_sent_again_or_dropped(
    bench: RelayBench, commands: CommandLine
) -> None:
    await with_dead_letters(bench)

    dropped = await run(commands, "events", "drop", "I-2-dead", "--by", "ana")
    again = await run(commands, "events", "resend", "--all")
    nothing = await run(commands, "events", "resend", "I-2-dead")
    neither = await run(commands, "events", "drop", "I-2-dead")
    wrong = await run(commands, "events", "resend")

    assert (dropped.exit_code, again.stdout) == (0, "1 tried again\n")
    assert (nothing.exit_code, neither.exit_code, wrong.exit_code) == (1, 1, 2)
    assert "no dead letter" in neither.stderr
    sink = ListSink()
    await bench.make_due()
    await bench.relay(sink).run_until_idle()
    assert sink.of("I-1") == ["I-1-dead", "I-1-next"]
    assert sink.of("I-2") == ["I-2-next"]


async def test_dead_letters_of_one_instance_are_sent_again(
    bench: RelayBench, commands: CommandLine
) -> None:
    await with_dead_letters(bench)

    again = await run(commands, "events", "resend", "--instance", "I-1")
    both = await run(commands, "events", "resend", "--instance", "I-1", "--all")

    assert again.stdout == "1 tried again\n"
    assert both.exit_code == 2
    statuses = await bench.statuses()
    assert (statuses["I-1-dead"], statuses["I-2-dead"]) == ("RETRYING", "DEAD")


async def test_relaying_can_be_given_up(bench: RelayBench, commands: CommandLine) -> None:
    await bench.put("a")

    result = await run(commands, "events", "stop-relaying")

    assert "1 that waited expire" in result.stdout
    assert (await run(commands, "events", "status")).stdout.split()[1] == "none,"


async def test_a_relay_for_another_sink_is_refused(
    bench: RelayBench, commands: CommandLine
) -> None:
    result = await run(commands, "relay", "--relay-sink", "stdout", "--until-idle")

    assert result.exit_code == 1
    assert "go to sink 'list'" in result.stderr
    assert "--replace-sink" in result.stderr


def killed(command: list[str], env: dict[str, str]) -> bytes:
    """Run a relay, kill it once it has written some events, and return what it wrote."""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as relay:
        assert relay.stdout is not None
        written = b"".join(relay.stdout.readline() for _ in range(10))
        relay.send_signal(signal.SIGKILL)
        return written + relay.stdout.read()


def finished(command: list[str], env: dict[str, str]) -> bytes:
    """Run a relay until nothing is left to send, and return what it wrote."""
    done = subprocess.run(command, env=env, capture_output=True, timeout=60, check=True)
    assert done.stderr.decode().strip().endswith("delivered")
    return done.stdout


async def test_a_relay_process_that_is_killed_loses_nothing(
    bench: RelayBench, mongo_server: MongoServer, data: Database[Json]
) -> None:
    """SIGKILL while it sends; another process goes on, after the lock's end, which is not waited for here."""
    instances = [f"I-{number}" for number in range(40)]
    for instance in instances:
        await bench.put(*(f"{instance}/{n}" for n in range(4)), instance=instance)
    command = [sys.executable, "-m", "kikwiflow_worker", "relay", "--relay-sink", "stdout"]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("KIKWIFLOW_")}
    env = {
        **ours,
        "KIKWIFLOW_MONGODB_URI": mongo_server.uri,
        "KIKWIFLOW_MONGODB_DATABASE": data.name,
    }

    before = await asyncio.to_thread(killed, [*command, "--replace-sink"], env)
    assert "PENDING" in (await bench.statuses()).values()
    await bench.make_due()
    after = await asyncio.to_thread(finished, [*command, "--until-idle"], env)

    whole = [line for line in (before + b"\n" + after).split(b"\n") if line.endswith(b"}}")]
    seen = [json.loads(line) for line in whole]
    for instance in instances:
        ids = [one["id"] for one in seen if one["processInstanceId"] == instance]
        assert list(dict.fromkeys(ids)) == [f"{instance}/{n}" for n in range(4)]
    assert set((await bench.statuses()).values()) == {"RELAYED"}


def a_relaying(
    bench: RelayBench, monkeypatch: pytest.MonkeyPatch, sink: ListSink, name: str = SINK
) -> Relaying:
    monkeypatch.setattr(relaying, "load_sink", lambda _name, _options: sink)
    settings = Settings(relay=True, relay_sink=name, grace_seconds=10)
    return Relaying(settings, bench.store, bench.metrics, "worker-1.boot")


async def test_a_relay_beside_a_worker_ends_with_it(
    bench: RelayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived = asyncio.Event()

    async def notice(_: object) -> None:
        arrived.set()

    async def work() -> str:
        await bench.put("a")
        await asyncio.wait_for(arrived.wait(), 20)
        return "drained"

    sink = ListSink(notice)
    result = await a_relaying(bench, monkeypatch, sink).run_beside(work())

    assert result == "drained"
    assert await bench.statuses() == {"a": "RELAYED"}  # what was being sent has been recorded


async def test_what_ends_a_worker_is_not_hidden_by_its_relay(
    bench: RelayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        raise StoreUnavailableError("no database")

    with pytest.raises(StoreUnavailableError, match="no database"):
        await a_relaying(bench, monkeypatch, ListSink()).run_beside(work())


async def test_a_worker_goes_on_without_a_relay_that_may_not_run(
    bench: RelayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> str:
        while not logged:
            await asyncio.sleep(0.01)
        return "drained"

    with capture_logs() as logged:
        beside = a_relaying(bench, monkeypatch, ListSink(), "elsewhere")
        assert await asyncio.wait_for(beside.run_beside(work()), 20) == "drained"

    assert [one["event"] for one in logged] == ["relay.refused"]
    assert "go to sink 'list'" in logged[0]["error"]


async def test_a_second_request_ends_a_relay_in_the_middle(
    bench: RelayBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = asyncio.Event()

    async def hang(_: object) -> None:
        stuck.set()
        await asyncio.Event().wait()

    beside = a_relaying(bench, monkeypatch, ListSink(hang))

    async def work() -> str:
        await bench.put("a")
        await asyncio.wait_for(stuck.wait(), 20)
        beside.stop()
        beside.stop()
        return "cancelled"

    assert await asyncio.wait_for(beside.run_beside(work()), 5) == "cancelled"
    assert await bench.statuses() == {"a": "PENDING"}
