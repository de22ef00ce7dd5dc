"""Section 9.3, flow: what the reference found missing in its own tests about tokens and deploys, with its siblings."""

from kikwiflow_worker.engine.draft import StepFailedError
from tests.conformance.looks import ENDED, Deploy, DueAt, Then, Warns
from tests.conformance.row import Difference, Row
from tests.conformance.setup import Answers, Fixture, Throws
from tests.conformance.steps import Complete, Correlate, Execute, Start
from tests.support.definitions import Json, a_file, a_flow, a_node, a_start, a_task, an_end
from tests.support.findings import a_gateway, a_host, a_join, a_split, an_event

TASK = "TASK STANDARD PENDING"
WAIT = "WAIT EXTERNAL_TASK CREATED"
JOIN = "JOIN JOIN_GATEWAY AWAITING_BRANCHES pending={}"
RAN = ("weigh_parcel",)


def tiny(*nodes: Json, invalid: bool = False, key: str = "tiny") -> Fixture:
    """Return a definition that is too small for a file."""
    return Fixture(key, content=a_file(*nodes, key=key), invalid=invalid)


def wait(node_id: str = "WAIT", target: str = "END", **fields: object) -> Json:
    """Return an external task as JSON."""
    return a_node(node_id, "EXTERNAL_TASK", target, **fields)


def timer(node_id: str = "TIMER", target: str = "END", **fields: object) -> Json:
    """Return a timer task of an hour as JSON."""
    fixed = {"providerType": "STATIC", "staticValue": "PT1H"}
    return a_node(node_id, "TIMER_TASK", target, **fixed, **fields)


def choice(target: str = "TASK", **fields: object) -> Json:
    """Return a gateway that always takes the default as JSON."""
    return a_gateway("CHOICE", a_flow(target, isDefault=True, handlesNull=True), **fields)


def catcher(node_id: str = "CATCHER", target: str = "END", **fields: object) -> Json:
    """Return an event catcher for the key ``news`` as JSON."""
    fixed = {"catchType": "STANDALONE", "providerType": "STATIC", "staticKey": "news"}
    return a_node(node_id, "EVENT_CATCHER", target, **fixed, **fields)


def _row(name: str, case: str, want: str, fixture: Fixture, *steps: object, **more: object) -> Row:
    return Row(
        id=f"9.3-{name}",
        case=case,
        reference=want,
        fixtures=(fixture,),
        steps=steps,  # type: ignore[arg-type]
        **more,  # type: ignore[arg-type]
    )


COMMITS = (
    _row(
        "1a", "commitAfter on a task, then the end", "COMPLETED",
        tiny(a_start(), a_task("TASK", "END", commitAfter=True), an_end()),
        Start(), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "1b", "commitAfter on an external task, then the end", "COMPLETED",
        tiny(a_start("WAIT"), wait(commitAfter=True), an_end()),
        Start(), Complete("WAIT"), Then(status=ENDED),
    ),
    _row(
        "1c", "commitAfter on a timer task, then the end", "COMPLETED",
        tiny(a_start("TIMER"), timer(commitAfter=True), an_end()),
        Start(), Execute("TIMER"), Then(status=ENDED),
    ),
    _row(
        "1d", "commitAfter on an event catcher, then the end", "COMPLETED",
        tiny(a_start("CATCHER"), catcher(commitAfter=True), an_end()),
        Start(), Correlate("news"), Then(status=ENDED),
    ),
    _row(
        "1e", "commitAfter on a task in a branch, then the join", "the branch arrives, once",
        tiny(
            a_start("SPLIT"), a_split("TASK", "WAIT"), a_task("TASK", "JOIN", commitAfter=True),
            wait(target="JOIN"), a_join(), an_end(),
        ),
        Start(), Execute("TASK"), Then(tasks=(JOIN.format(1),), waits=(WAIT,), ran=RAN),
        Complete("WAIT"), Execute("JOIN"), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "1f", "commitAfter on the last node, which has no flow", "COMPLETED",
        tiny(a_start(), a_task("TASK", commitAfter=True)),
        Start(), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "2a", "commitAfter on a task, then a gateway, then a task", "a row for the task after the gateway",
        tiny(
            a_start("FIRST"), a_task("FIRST", "CHOICE", commitAfter=True), choice(),
            a_task("TASK", "END"), an_end(),
        ),
        Start(), Then(tasks=(TASK,), ran=RAN), Execute("TASK"), Then(status=ENDED, ran=RAN * 2),
    ),
    _row(
        "2b", "commitAfter on a task, then a gateway whose provider is asked, then a task", "a row for the task after the gateway",
        tiny(
            a_start("FIRST"), a_task("FIRST", "CHOICE", commitAfter=True),
            choice(providerType="BEAN", providerBean="ask"), a_task("TASK", "END"), an_end(),
        ),
        Start(), Then(tasks=(TASK,), ran=RAN), Execute("TASK"), Then(status=ENDED, ran=RAN * 2),
        handlers={"ask": Answers(None)},
    ),
    _row(
        "2c", "commitAfter on a gateway, then a task", "a row for the task",
        tiny(a_start("CHOICE"), choice(commitAfter=True), a_task("TASK", "END"), an_end()),
        Start(), Then(tasks=(TASK,)), Execute("TASK"), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "2d", "commitAfter on the start event, then a task", "a row for the task",
        tiny(a_node("START", "DEFAULT_START_EVENT", "TASK", commitAfter=True), a_task("TASK", "END"), an_end()),
        Start(), Then(tasks=(TASK,)), Execute("TASK"), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "2e", "commitAfter on a task, then a split", "rows for both branches and the join",
        tiny(
            a_start("FIRST"), a_task("FIRST", "SPLIT", commitAfter=True), a_split("TASK", "WAIT"),
            a_task("TASK", "JOIN"), wait(target="JOIN"), a_join(), an_end(),
        ),
        Start(), Then(tasks=(TASK, JOIN.format(2)), waits=(WAIT,), ran=RAN),
    ),
    _row(
        "2f", "commitAfter on a join, then a task", "a row for the task",
        tiny(
            a_start("SPLIT"), a_split("WAIT", "JOIN"), wait(target="JOIN"),
            a_node("JOIN", "JOIN_GATEWAY", "TASK", commitAfter=True), a_task("TASK", "END"), an_end(),
        ),
        Start(), Complete("WAIT"), Execute("JOIN"), Then(tasks=(TASK,)),
        Execute("TASK"), Then(status=ENDED, ran=RAN),
    ),
    *(
        _row(
            f"3{letter}", f"commitBefore on {words}", "the path goes on",
            tiny(a_start("NODE"), a_node("NODE", node_type, *targets, commitBefore=True, **fields), an_end()),
            Start(), *then,
        )
        for letter, words, node_type, targets, fields, then in (
            ("a", "the end event", "DEFAULT_END_EVENT", (), {}, (Then(status=ENDED),)),
            ("b", "a gateway", "EXCLUSIVE_GATEWAY", (a_flow("END", isDefault=True, handlesNull=True),), {"providerType": "VARIABLE", "providerVariable": "x"}, (Then(status=ENDED),)),
            ("c", "an external task", "EXTERNAL_TASK", ("END",), {}, (Complete("NODE"), Then(status=ENDED))),
            ("d", "a timer task", "TIMER_TASK", ("END",), {"providerType": "STATIC", "staticValue": "PT1H"}, (Execute("NODE"), Then(status=ENDED))),
            ("e", "an event catcher", "EVENT_CATCHER", ("END",), {"catchType": "STANDALONE", "providerType": "STATIC", "staticKey": "news"}, (Correlate("news"), Then(status=ENDED))),
        )
    ),
    _row(
        "3f", "commitBefore on the start event", "the path goes on",
        tiny(a_node("START", "DEFAULT_START_EVENT", "TASK", commitBefore=True), a_task("TASK", "END"), an_end()),
        Start(), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "3g", "commitBefore on a split and on its join", "the path goes on",
        tiny(
            a_start("SPLIT"), {**a_split("WAIT", "JOIN"), "commitBefore": True}, wait(target="JOIN"),
            {**a_join(), "commitBefore": True}, an_end(),
        ),
        Start(), Complete("WAIT"), Execute("JOIN"), Then(status=ENDED),
    ),
)  # fmt: skip


def branch(first: Json, *others: Json, key: str = "tiny") -> Fixture:
    """Return a split into a branch that begins with ``first`` and one that waits for an external task."""
    nodes = (first, *others, wait("OTHER", "JOIN"), a_join(), an_end())
    return tiny(a_start("SPLIT"), a_split(str(first["id"]), "OTHER"), *nodes, key=key)


OTHER = "OTHER EXTERNAL_TASK CREATED"
BRANCHES = (
    _row(
        "4a", "a branch that starts with a gateway, then an external task", "the external task exists",
        branch(choice("WAIT"), wait(target="JOIN")),
        Start(), Then(tasks=(JOIN.format(2),), waits=(WAIT, OTHER)),
        Complete("WAIT"), Complete("OTHER"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "4b", "a branch that starts with a timer task", "the timer exists",
        branch(timer(target="JOIN")),
        Start(), Then(tasks=("TIMER TIMER_TASK PENDING due=1:00:00", JOIN.format(2)), waits=(OTHER,)),
        Execute("TIMER"), Complete("OTHER"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "4c", "a branch that starts with an event catcher", "the catcher exists",
        branch(catcher(target="JOIN")),
        Start(), Then(tasks=(JOIN.format(2),), waits=("CATCHER EVENT_CATCHER_STANDALONE CREATED news", OTHER)),
        Correlate("news"), Complete("OTHER"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "4d", "a branch that starts with a gateway that leads to the join", "the branch has arrived at once",
        branch(choice("JOIN")),
        Start(), Then(tasks=(JOIN.format(1),), waits=(OTHER,)),
        Complete("OTHER"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "4e", "a branch that ends at an end event", "it counts as arrived; the other branch goes on",
        branch(a_task("TASK", "STOP"), an_end("STOP")),
        Start(), Execute("TASK"), Then(tasks=(JOIN.format(1),), waits=(OTHER,), ran=RAN),
        Complete("OTHER"), Execute("JOIN"), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "4f", "a branch whose last node has no flow", "it counts as arrived; the other branch goes on",
        branch(a_task("TASK")),
        Start(), Execute("TASK"), Then(tasks=(JOIN.format(1),), waits=(OTHER,), ran=RAN),
        Complete("OTHER"), Execute("JOIN"), Then(status=ENDED, ran=RAN),
    ),
    _row(
        "4g", "every branch leads straight to the join", "the path goes on",
        tiny(a_start("SPLIT"), a_split("JOIN", "JOIN"), a_join(), an_end()),
        Start(), Then(status=ENDED),
    ),
    _row(
        "5a", "a branch that starts with another split", "the inner branches exist",
        branch(
            a_split("WAIT", "MORE", join="INNER", node_id="NESTED"), wait(target="INNER"), wait("MORE", "INNER"),
            a_join("JOIN", node_id="INNER"),
        ),
        Start(),
        Then(
            tasks=("INNER JOIN_GATEWAY AWAITING_BRANCHES pending=2", JOIN.format(2)),
            waits=(WAIT, "MORE EXTERNAL_TASK CREATED", OTHER),
        ),
        Complete("WAIT"), Complete("MORE"), Execute("INNER"), Then(tasks=(JOIN.format(1),), waits=(OTHER,)),
        Complete("OTHER"), Execute("JOIN"), Then(status=ENDED),
    ),
    _row(
        "5b", "a branch that starts with a gateway and then another split", "the inner branches exist",
        branch(
            choice("NESTED"), a_split("WAIT", "JOIN_2", join="JOIN_2", node_id="NESTED"), wait(target="JOIN_2"),
            a_join("JOIN", node_id="JOIN_2"),
        ),
        Start(),
        Then(tasks=("JOIN_2 JOIN_GATEWAY AWAITING_BRANCHES pending=1", JOIN.format(2)), waits=(WAIT, OTHER)),
    ),
)  # fmt: skip

DEPLOYS = (
    _row(
        "6", "a split without a flow", "deploy error",
        tiny(a_start("SPLIT"), a_split(), a_join(), an_end(), invalid=True),
        Deploy("flowNodes.SPLIT.outgoing"),
    ),
    *(
        _row(
            f"7{letter}", f"a split whose targetJoinId {words}", "deploy error",
            tiny(a_start("SPLIT"), a_split("TASK", join=join), a_task("TASK", "JOIN"), a_join(), an_end(), invalid=True),
            Deploy("flowNodes.SPLIT.targetJoinId"),
        )
        for letter, words, join in (
            ("a", "names no node", "JOINN"), ("b", "is missing", None), ("c", "names a node that is no join", "TASK"),
        )
    ),
    _row(
        "17a", "the answer is null and there is only a default flow, with an answer provider", "refused (IllegalStateException), documented",
        tiny(a_start("CHOICE"), a_gateway("CHOICE", a_flow("END", isDefault=True), providerType="BEAN", providerBean="ask"), an_end()),
        Start(refused=StepFailedError),
        handlers={"ask": Answers(None)},
    ),
    _row(
        "17b", "the variable is missing and there is only a default flow", "refused (IllegalStateException), documented",
        tiny(a_start("CHOICE"), a_gateway("CHOICE", a_flow("END", isDefault=True)), an_end()),
        Start(refused=StepFailedError),
    ),
    _row(
        "17c", "the same behind an external task, run by a worker", "an incident",
        tiny(
            a_start("FIRST"), a_task("FIRST", "CHOICE", commitBefore=True),
            a_gateway("CHOICE", a_flow("END", isDefault=True)), an_end(),
        ),
        Start(), Execute("FIRST"),
        Then(
            tasks=("CHOICE EXCLUSIVE_GATEWAY ERROR attempts=1",), incidents=("CHOICE FAILED_JOB OPEN",), ran=RAN,
        ),
        differs=Difference("the incident is the gateway's; the task before it stays done", "no handler that succeeded runs again (design 10)"),
    ),
    _row(
        "18", "an error handler whose errorCode is the empty text", "keep it (it takes only an empty code), or refuse the deploy",
        tiny(a_start("HOST"), a_host("EXECUTABLE_TASK", "EVENT"), an_event("BOUNDARY_ERROR_HANDLER", errorCode=""), an_end()),
        Warns("flowNodes.EVENT.errorCode"), Start(refused=StepFailedError),
        handlers={"weigh_parcel": Throws("FRAGILE")},
    ),
    _row(
        "19", "an error handler for all codes before a specific one", "the first wins, the deploy warns",
        tiny(
            a_start("HOST"), a_host("EXECUTABLE_TASK", "EVERY", "ONE"),
            an_event("BOUNDARY_ERROR_HANDLER", "EVERY"),
            {**an_event("BOUNDARY_ERROR_HANDLER", "ONE", errorCode="FRAGILE"), "outgoing": [a_flow("WAIT")]}, wait(), an_end(),
        ),
        Warns("flowNodes.HOST.boundaryEventIds[1]"), Start(), Then(status=ENDED, ran=RAN),
        handlers={"weigh_parcel": Throws("FRAGILE")},
    ),
    _row(
        "20", "a reminder with the CRON expression `0 0 9 * * *`", "due at the next 09:00",
        tiny(
            a_start("WAIT"), wait(boundaryEventIds=["EVENT"]),
            an_event("BOUNDARY_NON_INTERRUPTIVE_TIMER", schedulePolicy={"type": "CRON", "expression": "0 0 9 * * *"}), an_end(),
        ),
        Start(), DueAt("EVENT", hour=9), Execute("EVENT"), DueAt("EVENT", hour=9),
    ),
    *(
        _row(
            f"22{letter}", f"{words} with two flows", "deploy error",
            tiny(a_start(str(node["id"])), {**node, "outgoing": [a_flow("END"), a_flow("END")]}, an_end(), invalid=True)
            if event is None
            else tiny(
                a_start("HOST"), a_host(host, "EVENT"),
                {**an_event(event), "outgoing": [a_flow("END"), a_flow("END")]}, an_end(), invalid=True,
            ),
            Deploy(f"flowNodes.{node['id'] if event is None else 'EVENT'}.outgoing"),
        )
        for letter, words, node, host, event in (
            ("a", "an error handler", {}, "EXECUTABLE_TASK", "BOUNDARY_ERROR_HANDLER"),
            ("b", "an interruptive timer", {}, "EXTERNAL_TASK", "BOUNDARY_INTERRUPTIVE_TIMER"),
            ("c", "a reminder", {}, "EXTERNAL_TASK", "BOUNDARY_NON_INTERRUPTIVE_TIMER"),
            ("d", "a boundary catch event", {}, "EXTERNAL_TASK", "BOUNDARY_INTERRUPTIVE_CATCH_EVENT"),
            ("e", "a task", a_task("TASK"), "", None),
            ("f", "an event catcher", catcher(), "", None),
            ("g", "a join", a_join(), "", None),
        )
    ),
)  # fmt: skip

ROWS = (*COMMITS, *BRANCHES, *DEPLOYS)
