"""The verifier finds every kind of violation of steps and instances, planted after a real small run that has none."""

import re
from functools import partial

import pytest

from tests.chaos.verify import lines_of, main, verify
from tests.chaos.verify_planting import NAME, Run, assert_found, place_of, trail_of
from tests.chaos.verify_trial import PROCESSES
from tests.support.workers import Json

pytestmark = [pytest.mark.mongo, pytest.mark.acceptance, pytest.mark.timeout(120)]

# --- the untouched run


def test_an_untouched_run_is_clean(run: Run) -> None:
    report = run.report()

    assert report.is_clean, lines_of(report)
    assert report.handler_calls == len([line for line in run.lines if line["phase"] == "start"])
    assert report.handler_repeats == 0
    assert report.instances == len(run.stored["process_history"]) > 10
    assert report.tasks > 150
    assert report.commits > 100
    for _, each in PROCESSES:
        assert run.history(each.key), f"no instance of {each.key} came to its end"
    assert any(found["status"] == "CANCELLED" for found in run.stored["process_history"])


def test_workers_at_work_leave_nothing_that_nobody_can_reach(run: Run) -> None:
    """What is legal in passing was looked at while it passed."""
    assert len(run.looks) > 2
    assert sum(sum(look.examined.values()) for look in run.looks) > 50
    assert [each for look in run.looks for each in look.found] == []


def test_a_handler_repeat_is_counted_and_no_violation(run: Run) -> None:
    """Its worker was killed after the call began; another worker called it again."""
    first = next(line for line in run.lines if line["phase"] == "start")
    run.lines.insert(0, {**first, "call": "killed", "at": first["at"] - 1})

    report = run.report()

    assert (report.is_clean, report.handler_repeats) == (True, 1), lines_of(report)


def test_the_command_fails_with_what_is_wrong(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.chaos.verify.verify", partial(verify, until=run.until))
    given = ["--uri", run.server.uri, "--database", NAME, "--effects"]
    given += [str(run.folder / "effects.jsonl"), "--ledger", str(run.folder / "ledger.jsonl")]
    assert main(given) == 0
    capsys.readouterr()
    (lost, *_) = run.history("work")
    run.collection("process_history").delete_one({"_id": lost["_id"]})

    assert main(given) == 1
    assert re.search(rf"lost +\d+\n +instance {lost['_id']}", capsys.readouterr().out)


# --- steps


def test_a_step_that_was_never_committed(run: Run) -> None:
    document = run.history("work")[0]
    node, _, _ = trail_of(document).pop(0).split()
    run.replace(document)

    report = run.report()

    assert_found(
        report.lost, node, document["_id"], "was never committed, though its handler ended"
    )
    assert_found(report.other, document["_id"], "variable total")
    assert_found(report.other, document["_id"], "variable fold")


def test_a_quiet_step_that_nobody_ran(run: Run) -> None:
    document = run.history("work")[0]
    nodes = {entry.split()[0] for entry in trail_of(document)}
    node = next(
        line["node"]
        for line in run.lines
        if line["instance"] == document["_id"] and line["node"] not in nodes
    )
    run.lines = [line for line in run.lines if not run_of(line, document, node, "end")]

    assert_found(run.report().lost, node, document["_id"], "its handler never ended")


def run_of(line: Json, document: Json, node: str, phase: str) -> bool:
    """Return whether a line of the effects log is about this."""
    return {"instance": document["_id"], "node": node, "phase": phase}.items() <= line.items()


def test_a_step_that_was_committed_twice_under_one_key(run: Run) -> None:
    document = run.history("work")[0]
    node, key, _ = trail_of(document)[1].split()
    trail_of(document).append(trail_of(document)[1])
    run.replace(document)

    assert_found(run.report().doubled, node, document["_id"], key, "committed 2 times")


def test_a_join_that_fired_twice_runs_what_follows_under_a_second_key(run: Run) -> None:
    document = run.history("work")[0]
    node = behind_the_join()
    again = {"key": "second-key", "call": "second-call"}
    for phase in ("start", "end"):
        run.lines.append({**run.effects(document["_id"], node, phase)[0], **again})
    trail_of(document).append(f"{node} second-key second-call")
    run.replace(document)

    report = run.report()

    assert_found(report.doubled, node, document["_id"], "ran under 2 idempotency keys")
    assert_found(report.doubled, node, document["_id"], "committed 2 times")


def behind_the_join() -> str:
    """Return the handler behind the split of ``work`` that has four handlers as its branches."""
    file = PROCESSES[0][1].file["flowNodes"]
    split = next(n for n in file.values() if n["type"] == "PARALLEL_GATEWAY" and is_flat(file, n))
    join = file[split["targetJoinId"]]
    target: str = join["outgoing"][0]["targetNodeId"]
    return target


def is_flat(file: Json, split: Json) -> bool:
    """Return whether four handlers follow a split."""
    kinds = [file[flow["targetNodeId"]]["type"] for flow in split["outgoing"]]
    return kinds == ["EXECUTABLE_TASK"] * 4


def test_a_join_that_fired_early(run: Run) -> None:
    document = run.history("work")[0]
    node = behind_the_join()
    trail = trail_of(document)
    at = place_of(document, node)
    trail[at - 1], trail[at] = trail[at], trail[at - 1]
    run.replace(document)
    before = trail[at].split()[0]

    assert_found(run.report().other, node, before, document["_id"], "was committed before")


def test_a_join_that_fired_while_a_branch_still_ran(run: Run) -> None:
    document = run.history("work")[0]
    node = behind_the_join()
    (started,) = run.effects(document["_id"], node, "start")
    started["at"] -= 5

    assert_found(run.report().other, node, document["_id"], "began", "had ended, which comes first")


def test_two_steps_in_the_wrong_order(run: Run) -> None:
    document = run.history("work")[0]
    trail = trail_of(document)
    trail[0], trail[1] = trail[1], trail[0]
    run.replace(document)
    first, second = trail[0].split()[0], trail[1].split()[0]

    report = run.report()

    assert_found(report.other, first, second, document["_id"], "was committed before")
    assert_found(report.other, document["_id"], "variable fold")


@pytest.mark.parametrize("name", ["total", "fold"])
def test_a_variable_that_no_step_gave(run: Run, name: str) -> None:
    document = run.history("work")[0]
    document["variables"][name]["value"] += 1
    run.replace(document)

    assert_found(run.report().other, f"variable {name}", document["_id"])


def test_an_outcome_without_an_effect(run: Run) -> None:
    document = run.history("work")[0]
    node, key, called = trail_of(document)[0].split()
    run.lines = [line for line in run.lines if (line["call"], line["phase"]) != (called, "end")]

    assert_found(run.report().other, node, key, document["_id"], called, "which never ended")


def test_an_effect_without_an_outcome(run: Run) -> None:
    """A second call under another key that ended, and nothing came of it."""
    document = run.history("work")[0]
    node, _, _ = trail_of(document)[0].split()
    for phase in ("start", "end"):
        run.lines.append({**run.effects(document["_id"], node, phase)[0], "key": "lost"})

    report = run.report()

    assert_found(report.doubled, node, document["_id"], "2 idempotency keys")
    assert_found(report.lost, node, "lost", document["_id"], "committed under another key")


def test_a_key_that_two_steps_were_given(run: Run) -> None:
    document = run.history("work")[0]
    first, second = trail_of(document)[0].split(), trail_of(document)[1].split()
    for phase in ("start", "end"):
        run.effects(document["_id"], second[0], phase)[0]["key"] = first[1]

    assert_found(run.report().other, first[1], second[0], first[0], document["_id"])


def test_both_ways_out_of_a_race(run: Run) -> None:
    document = run.history("people")[0]
    ways = PROCESSES[1][1].file["flowNodes"]
    event = next(n for n in ways.values() if n["type"] == "BOUNDARY_INTERRUPTIVE_CATCH_EVENT")
    host = ways[event["attachedToRef"]]
    both = [each["outgoing"][0]["targetNodeId"] for each in (host, event)]
    on_trail = {entry.split()[0] for entry in trail_of(document)}
    (taken,), (other,) = set(both) & on_trail, set(both) - on_trail
    for phase in ("start", "end"):
        line = run.effects(document["_id"], taken, phase)[0]
        run.lines.append({**line, "key": "other", "node": other, "call": "other"})
    trail_of(document).insert(place_of(document, taken), f"{other} other other")
    run.replace(document)

    assert_found(run.report().doubled, taken, other, document["_id"], "only one can")


def test_a_handler_of_the_way_that_was_not_taken(run: Run) -> None:
    document = run.history("people")[0]
    nodes = PROCESSES[1][1].file["flowNodes"]
    event = next(n for n in nodes.values() if n["type"] == "BOUNDARY_INTERRUPTIVE_CATCH_EVENT")
    both = {
        nodes[event["attachedToRef"]]["outgoing"][0]["targetNodeId"],
        event["outgoing"][0]["targetNodeId"],
    }
    on_trail = {entry.split()[0] for entry in trail_of(document)}
    (taken,), (other,) = both & on_trail, both - on_trail
    line = run.effects(document["_id"], taken, "start")[0]
    run.lines.append({**line, "key": "other", "node": other, "call": "other"})

    assert_found(run.report().other, other, document["_id"], "was not the way taken")


def test_a_timer_that_fired_too_often(run: Run) -> None:
    document = run.history("people")[0]
    reminder = next(
        n for n in PROCESSES[1][1].file["flowNodes"].values() if "NON_INTERRUPTIVE" in n["type"]
    )
    node = reminder["outgoing"][0]["targetNodeId"]
    trail_of(document).extend(f"{node} key-{index} call" for index in range(3))
    run.replace(document)

    assert_found(run.report().doubled, node, document["_id"], "its timer fires 2 times")


# --- instances


def test_a_start_that_was_lost(run: Run) -> None:
    (lost, *_) = run.history("people")
    run.collection("process_history").delete_one({"_id": lost["_id"]})

    report = run.report()

    assert_found(report.lost, lost["_id"], lost["businessKey"], "was promised")
    assert_found(report.lost, lost["_id"], "is in no collection")


def test_a_start_that_was_doubled(run: Run) -> None:
    (document, *_) = run.history("work")
    run.collection("process_history").insert_one({**document, "_id": "twin"})

    assert_found(run.report().doubled, document["businessKey"], document["_id"], "twin")


def test_a_start_that_nobody_asked_for(run: Run) -> None:
    (document, *_) = run.history("work")
    stranger = {**document, "_id": "stranger", "businessKey": "work/999"}
    run.collection("process_history").insert_one(stranger)

    assert_found(run.report().other, "stranger", "work/999", "never asked for")


def test_an_instance_that_was_cancelled_by_nobody(run: Run) -> None:
    (document, *_) = run.history("work")
    run.replace({**document, "status": "CANCELLED"})

    assert_found(run.report().lost, document["_id"], "nobody asked for that")


def test_an_instance_that_has_not_ended(run: Run) -> None:
    (document, *_) = run.history("work")
    document["status"] = "ACTIVE"
    run.collection("process_history").delete_one({"_id": document["_id"]})
    run.collection("process_instances").insert_one({**document, "openPaths": 1})

    report = run.report()

    assert_found(report.stuck, document["_id"], "has not ended", "no task at all")
    assert_found(report.stuck, document["_id"], "no row carries it on")


def test_an_instance_that_runs_and_has_ended(run: Run) -> None:
    (document, *_) = run.history("work")
    run.collection("process_instances").insert_one({**document, "openPaths": 1})

    assert_found(run.report().doubled, document["_id"], "runs and has ended at once")


def test_a_child_that_is_missing(run: Run) -> None:
    child, parent = a_child_of_three(run)
    run.collection("process_history").delete_one({"_id": child["_id"]})

    assert_found(run.report().lost, parent, "has 2 completed children, not 3")


def test_a_child_that_was_started_twice(run: Run) -> None:
    child, parent = a_child_of_three(run)
    run.collection("process_history").insert_one({**child, "_id": "twin"})

    report = run.report()

    assert_found(report.doubled, parent, "has 4 completed children, not 3")
    assert_found(report.doubled, "twin", child["_id"], child["starterTaskId"])


def test_a_child_that_lost_its_last_step(run: Run) -> None:
    child, _ = a_child_of_three(run)
    node, _, _ = trail_of(child).pop().split()
    run.replace(child)

    assert_found(run.report().lost, node, child["_id"], "was never committed")


def a_child_of_three(run: Run) -> tuple[Json, str]:
    """Return a child of a call activity with three of them, and its parent's id."""
    parents = {document["_id"] for document in run.history("calls")}
    for called in PROCESSES[3][1].children:
        children = [c for c in run.history(called.key) if c["parentInstanceId"] in parents]
        of_one = [c for c in children if c["parentInstanceId"] == children[0]["parentInstanceId"]]
        if len(of_one) == 3:
            return of_one[0], of_one[0]["parentInstanceId"]
    raise AssertionError("no call activity had three children")
