"""The table of cases from the field: what goes wrong in systems like this one, and the rule here."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    Attributes:
        symptom: What people see elsewhere.
        rule: What is done about it here.
        cannot_arise: Why no test can show it; empty for cases that have tests.
    """

    id: str
    symptom: str
    rule: str
    cannot_arise: str = ""


SECTIONS: dict[str, tuple[Case, ...]] = {
    "Locks, renewal and clocks": (
        Case(
            "S-01",
            "A call outlives its lock, and a second host runs the same step",
            "Locks are renewed at a third of their length, whatever handlers do",
        ),
        Case(
            "S-02",
            "A slow database lets locks lapse while their owners live",
            "A worker whose renewal is late claims and starts nothing; who may commit is decided by the epoch, so finished work is kept if nobody took it",
        ),
        Case(
            "S-03",
            "A task that comes back to the process that still runs it stops the worker",
            "It is left alone, with one line in the log",
        ),
        Case(
            "S-04",
            "Users guess the length of a lock; a finished task runs again when it ends",
            "Nobody guesses: locks are renewed, and every outcome ends the lock in the same write",
        ),
        Case(
            "S-05",
            "One host locks everything and runs stale copies later",
            "No more is claimed than there are free slots, and a claim whose lock has lapsed is given back and not started",
        ),
        Case(
            "S-06",
            "Long tasks are taken for dead because of their running time",
            "Only a lock that nobody renewed is taken over",
        ),
        Case(
            "S-07",
            "A task that is due later is delivered early, many times",
            "The due date and the lock's end are different fields; what is not due cannot be claimed",
        ),
        Case(
            "S-08",
            "An outage of the database lets steps that run start again elsewhere",
            "A lock outlives an outage that is shorter; the commit waits for the database",
        ),
        Case(
            "S-09",
            "A frozen process wakes after its lock and goes on writing",
            "Each write names worker and epoch; what lost its claim writes nothing",
        ),
        Case(
            "S-10",
            "At shutdown the heartbeat stops first, and what drains is taken for dead",
            "Renewal is the last to stop",
        ),
        Case(
            "S-11",
            "Recovery acts on what it read, without having won the claim",
            "The answer to the claim is the only licence to run",
        ),
        Case(
            "S-12",
            "A process drains while its successor with the same name starts, and work is stranded",
            "A worker is its name and a boot id: the successor is somebody else",
        ),
        Case(
            "S-13",
            "Clocks that differ between hosts break locks and schedules",
            "Due dates and locks are judged by the database's clock; the difference is measured and warned of",
        ),
        Case(
            "S-14",
            "Renewal is set to more than the lock's length",
            "It is a third of the lock",
            "the interval follows from the lock and there is no setting for it.",
        ),
        Case(
            "S-15",
            "A handler that blocks the loop starves the heartbeat",
            "Renewal has a thread and a connection of its own; the handler is named in the log",
        ),
    ),
    "After a crash": (
        Case(
            "S-16",
            "Tasks of a process that came back under its old name stay in progress for ever",
            "The lock is on the task, and nothing depends on the record of workers",
        ),
        Case(
            "S-17",
            "A crash uses up a retry, or drops the task",
            "Crashes are counted apart from attempts",
        ),
        Case(
            "S-18",
            "Work of a dead process is recovered after hours",
            "Within the rest of the lock plus one poll",
        ),
        Case(
            "S-19",
            "A stale lock is refreshed and never run, and starves what is due",
            "A lapsed lock is due work: one query finds both",
        ),
        Case(
            "S-20",
            "Only a leader or a paid part recovers work",
            "Any worker takes over any other's tasks",
        ),
        Case(
            "S-21",
            "A task leaves the queue before its assignment is stored",
            "A claim is one write to the task; what removes a row inserts its successor in the same transaction",
        ),
        Case(
            "S-22",
            "A database that takes no writes for a while leaves tasks in progress for ever",
            "A commit is tried until the database answers, and the worker stays",
        ),
        Case(
            "S-23",
            "The answer to a claim is lost, and the task waits for a time-out",
            "Locks under the own name that nobody here knows are found and given back",
        ),
        Case(
            "S-24",
            "A recurring task of a dead host never runs again",
            "Timers are tasks like others and are taken over like them",
        ),
    ),
    "Shutdown": (
        Case(
            "S-25",
            "A warm shutdown loses or repeats tasks, and nothing can be cancelled meanwhile",
            "The first signal claims nothing more, finishes what runs, and gives back the rest without using an attempt",
        ),
        Case(
            "S-26",
            "The signal reaches a shell and not the worker",
            "The worker is the first process of its container and unit",
        ),
        Case(
            "S-27",
            "There is no grace by default, or the service manager's is shorter",
            "25 s by default; the worker asks systemd for the time that its stop may take",
        ),
        Case(
            "S-28",
            "Work is held by a process that is going away",
            "What has not started is given back at once, and others take it within a second",
        ),
        Case(
            "S-29",
            "A kill tears a commit",
            "The second signal cancels handlers and no commit; what hangs on is ended within five seconds, and the database decides",
        ),
        Case(
            "S-30",
            "A handler that blocks keeps the process from ending",
            "A thread of its own hears the signals and ends the process at the deadline",
        ),
    ),
    "Load and growth": (
        Case(
            "S-31",
            "Claims get slower with the backlog",
            "A claim looks at one row, whatever waits behind it",
        ),
        Case(
            "S-32",
            "A large backlog stops the processor",
            "As S-31: the cost of a claim does not depend on the backlog",
        ),
        Case(
            "S-33",
            "Idle pollers break the server",
            "Idle polls back off with jitter and start again with work",
        ),
        Case(
            "S-34",
            "Work of the future makes claims slow",
            "What is not due costs nothing: it is behind the end of the index range",
        ),
        Case("S-35", "The query for work is slow", "As S-31"),
        Case(
            "S-36",
            "Who loses a claim waits for a whole poll",
            "The same claim goes on to the next row",
        ),
        Case(
            "S-37",
            "Finished rows stay for ever",
            "A finished instance leaves in the transaction that ends it; its record has an end, and can be deleted before",
        ),
        Case(
            "S-38",
            "Lists and counts for people read whole collections",
            "Lists are pages by index, counts stop at 10,000, and each query has a time limit",
        ),
    ),
    "Fairness": (
        Case(
            "S-39",
            "Old work starves under fresh arrivals",
            "The oldest due task comes first; the age of the oldest is a metric",
        ),
        Case("S-40", "Low priorities starve", "Every fourth claim takes the oldest"),
        Case(
            "S-41", "One tenant's thousand tasks keep another's one waiting", "Tenants take turns"
        ),
        Case("S-42", "One process takes everything", "No more than it has free slots"),
        Case(
            "S-43",
            "Tasks are pushed to a worker that is full, time out, and are pushed again",
            "Workers ask for work when they have a slot",
        ),
    ),
    "Poison, retries and missing handlers": (
        Case(
            "S-44",
            "A task that kills its worker is delivered for ever",
            "After three crashes it waits for a person; suspects run alone, so that others are not blamed",
        ),
        Case(
            "S-45",
            "An unusual exception blocks a slot for ever",
            "Whatever a handler raises ends its step and frees its slot",
        ),
        Case(
            "S-46",
            "A task without a handler is discarded",
            "It waits, and is shown with its handler's name",
        ),
        Case(
            "S-47",
            "A bulk retry reports wrong numbers and leaves the retries used up",
            "It counts before it asks, gives the attempts back, and does nothing twice",
        ),
        Case(
            "S-48", "Branches that fail together cancel each other", "Attempts are counted by task"
        ),
    ),
    "MongoDB": (
        Case(
            "S-49",
            "Conflicts of versions shut the server down",
            "A lost claim is an ordinary outcome",
        ),
        Case("S-50", "One failing chore stops all work", "Chores are isolated and start again"),
        Case(
            "S-51",
            "A shutdown of the database during a task kills the worker",
            "Nothing is lost, doubled or repeated without need when the primary goes under load",
        ),
        Case(
            "S-52",
            "A change of the primary ends the process or leaves it silent",
            "The worker backs off, is not ready, and goes on within seconds of a new primary",
        ),
        Case(
            "S-53",
            "The process lives and does nothing, and every probe is green",
            "Liveness and the watchdog ask for progress",
        ),
        Case("S-54", "Write conflicts reach the caller", "The whole transaction is repeated"),
        Case(
            "S-55",
            "Change streams on every host make duplicates",
            "What wakes a worker is only a hint; work comes from the claim",
        ),
        Case(
            "S-56",
            "Without transactions, or with an unknown result, work is lost",
            "A replica set is required; an unknown commit is sent again until the answer is definite",
        ),
        Case(
            "S-57",
            "A repeated schedule ignores its zone and drifts after downtime",
            "A schedule is a grid in its zone, and does not depend on when it fires",
        ),
        Case(
            "S-58",
            "A branch that is counted twice starts a join that runs",
            "A branch counts once, and only for a join that waits",
        ),
    ),
    "Timers": (
        Case(
            "S-59",
            "After downtime a cycle fires once per missed slot",
            "Once by default; or skipped, or caught up to a limit",
        ),
        Case(
            "S-60",
            "A cycle whose start is in the past never starts",
            "The first cycle is the first slot of the grid after now, and so is the one after downtime",
        ),
        Case(
            "S-61",
            "Millions of due timers stop all else",
            "Timers are tasks in the same order; a claim looks at one row",
        ),
        Case(
            "S-62",
            "Cycles are wrong or stop when clocks change",
            "Instants strictly increase; a skipped time fires at the change, a repeated one once",
        ),
        Case("S-63", "A time that the clocks show twice fires twice", "The first time only"),
        Case("S-64", "Catching up has no bound", "100 cycles by default, 1000 at most"),
        Case(
            "S-65",
            "Timers are late under load, and nobody sees it",
            "How late each fires is a histogram",
        ),
    ),
    "Branches, events and messages": (
        Case(
            "S-66",
            "Branches that end together conflict in storms",
            "No transaction of a branch touches its join",
        ),
        Case(
            "S-67",
            "The flow stops after a conflict at a join",
            "An arrival that was not delivered is found and delivered by anybody",
        ),
        Case(
            "S-68",
            "A join waits for ever, or fires early",
            "It fires once after the last branch, whatever is lost on the way; a split without a branch goes on, one without a flow is refused",
        ),
        Case("S-69", "A path of a split never reaches the join", "Refused at deploy"),
        Case(
            "S-70",
            "Loops and nested gateways hang or fire early",
            "Random processes with splits, loops and gateways end once, each step done once",
        ),
        Case(
            "S-71",
            "A pause hides a race",
            "Races are run with both sides let go at the same instant",
        ),
        Case(
            "S-72",
            "A message before its receiver is lost, doubled or out of order",
            "It is kept as long as its sender says, known by its id, and goes to who has waited longest",
        ),
        Case(
            "S-73",
            "A deadline fires and the main path goes on too",
            "One transaction removes the host: one of them wins",
        ),
        Case(
            "S-74",
            "A parent is cancelled and its children go on; recursion has no end",
            "Cancelling reaches all descendants, and the depth of calls has a limit",
        ),
        Case(
            "S-75",
            "One conflicting row spoils a whole batch",
            "Others are claimed and renewed all the same",
        ),
    ),
    "Sizes and values": (
        Case(
            "S-76",
            "Variables that grow past the limit break the instance without an incident",
            "The size is checked before the commit: an incident on an instance that is intact",
        ),
        Case("S-77", "A large value is dropped silently", "It is refused where it is set, by name"),
        Case(
            "S-78",
            "Limits are unknown",
            "1 MB for one variable and a limit for all of an instance, in the error's text",
        ),
        Case(
            "S-79",
            "Dates lose their zone or precision, or cannot be read",
            "Instants are UTC to the millisecond from the start; a date that cannot be held is read as text",
        ),
        Case(
            "S-80",
            "A value that cannot be stored fails at the commit",
            "It fails at ``set``, by name",
        ),
    ),
    "Versions": (
        Case("S-81", "A deploy breaks what runs", "An instance keeps its version"),
        Case(
            "S-82",
            "A migration does nothing, or breaks what runs at the same time",
            "A verdict for each instance, a dry run, and a move that is decided anew when a step was faster",
        ),
        Case(
            "S-83",
            "Queue and engine disagree",
            "There is one record of a task",
            "the row of a task is queue, lock and state in one; there is no second record to disagree with.",
        ),
    ),
    "Operation": (
        Case(
            "S-84",
            "Nobody sees what is being retried",
            "A list of it, with the next attempt's time",
        ),
        Case(
            "S-85",
            "A bulk action reaches the visible page only",
            "It reads the filter to its end, says the number and asks; repeated, it goes on",
        ),
        Case(
            "S-86",
            "Harmless races are warnings every day",
            "Each event has one level; races that are expected are no warnings",
        ),
        Case(
            "S-87",
            "A line of the log does not say whose it is",
            "Lines of a step name instance, definition, version, node, task, attempt and worker",
        ),
        Case(
            "S-88",
            "What cannot be cancelled or deleted holds its slot for ever",
            "Cancelling ends the handler and frees the slot; deleting leaves nothing",
        ),
    ),
}
CASES = tuple(case for cases in SECTIONS.values() for case in cases)
