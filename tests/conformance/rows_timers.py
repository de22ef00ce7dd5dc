"""Sections 7.3.10 to 7.3.13: timer tasks and timers at their hosts."""

from kikwiflow_worker.errors import NotFoundError
from tests.conformance import fixtures as f
from tests.conformance.looks import ENDED, Deploy, Then
from tests.conformance.row import Row
from tests.conformance.steps import Complete, Correlate, Execute, Start

A = "tenant-a"
WAIT = "WAIT TIMER_TASK PENDING due=1 day, 0:00:00"
DEADLINE = "DEADLINE INTERRUPTIVE_TIMER PENDING due=1:00:00"
REMIND = "REMIND NON_INTERRUPTIVE_TIMER PENDING due={}:00:00 occurrence={}"
RECALL = "RECALL BOUNDARY_INTERRUPTIVE_CATCH_EVENT CREATED recall-waiting"
COLLECT = "COLLECT EXTERNAL_TASK CREATED"
CONFIRM = "CONFIRM EXTERNAL_TASK CREATED"


def remind(occurrence: int) -> str:
    """Return the row of a cycle that is due so many hours after the first was created."""
    return REMIND.format(occurrence, occurrence)


TIMER_TASKS = (
    Row(
        id="7.3.10-1",
        case="a timer task of one hour is reached",
        reference="one PENDING row of type TIMER_TASK, due later than in 55 minutes",
        fixtures=(f.TIMER,),
        steps=(Start(tenant=A), Then(tasks=("WAIT TIMER_TASK PENDING due=1:00:00",))),
    ),
    Row(
        id="7.3.10-2",
        case="the timer task is executed",
        reference="ACTIVE at the external task after it, no timer row; completing that: COMPLETED",
        fixtures=(f.TIMER,),
        steps=(
            Start(tenant=A),
            Execute("WAIT"),
            Then(waits=(CONFIRM,)),
            Complete("CONFIRM"),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.10-3",
        case="the length comes from a variable",
        reference="due in 25 to 35 minutes; executing it: COMPLETED",
        fixtures=(f.VARIABLE_TIMER,),
        steps=(
            Start({"pickup_time": "PT30M"}, tenant=A),
            Then(tasks=("WAIT TIMER_TASK PENDING due=0:30:00",)),
            Execute("WAIT"),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.11-1",
        case="the interruptive timer of a timer task fires",
        reference="COMPLETED; host, reminder and message are gone: the message finds nobody",
        fixtures=(f.TIMER_EVENTS,),
        steps=(
            Start(tenant=A),
            Then(tasks=(WAIT, DEADLINE, remind(1)), waits=(RECALL,)),
            Execute("DEADLINE"),
            Then(status=ENDED),
            Correlate("recall-waiting", tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.11-2",
        case="the reminder of a timer task fires",
        reference="ACTIVE; host, interruptive timer and message untouched; a new row of the reminder",
        fixtures=(f.TIMER_EVENTS,),
        steps=(
            Start(tenant=A),
            Then(tasks=(WAIT, DEADLINE, remind(1)), waits=(RECALL,)),
            Execute("REMIND"),
            Then(tasks=(WAIT, DEADLINE, remind(2)), waits=(RECALL,), replaced=("REMIND",)),
        ),
    ),
    Row(
        id="7.3.11-3",
        case="the message for a timer task comes",
        reference="COMPLETED; host, reminder and interruptive timer are gone",
        fixtures=(f.TIMER_EVENTS,),
        steps=(Start(tenant=A), Correlate("recall-waiting", tenant=A), Then(status=ENDED)),
    ),
    Row(
        id="7.3.11-4",
        case="the timer task itself is executed",
        reference="ACTIVE at the next node; its events are gone: the message finds nobody",
        fixtures=(f.TIMER_EVENTS,),
        steps=(
            Start(tenant=A),
            Execute("WAIT"),
            Then(waits=(CONFIRM,)),
            Correlate("recall-waiting", tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.11-5",
        case="an error handler at a timer task",
        reference="the deploy is refused",
        fixtures=(f.TIMER_ERROR_HANDLER,),
        steps=(Deploy("flowNodes.WAIT.boundaryEventIds[0]"),),
    ),
)

REMINDERS = (
    Row(
        id="7.3.12-1",
        case="an external task with a reminder is reached",
        reference="the external task, and one PENDING row of the reminder, due later than in 55 minutes",
        fixtures=(f.REMINDERS,),
        steps=(Start(), Then(tasks=(remind(1),), waits=(COLLECT,))),
    ),
    Row(
        id="7.3.12-2",
        case="the reminder fires",
        reference="ACTIVE, the host untouched; another row of the reminder, due not before the one before it",
        fixtures=(f.REMINDERS,),
        steps=(
            Start(),
            Then(tasks=(remind(1),), waits=(COLLECT,)),
            Execute("REMIND"),
            Then(tasks=(remind(2),), waits=(COLLECT,), replaced=("REMIND",)),
        ),
    ),
    Row(
        id="7.3.12-3",
        case="the reminder fires three times",
        reference="ACTIVE with its host each time, one cycle pending at the end",
        fixtures=(f.REMINDERS,),
        steps=(
            Start(),
            Execute("REMIND"),
            Then(tasks=(remind(2),), waits=(COLLECT,)),
            Execute("REMIND"),
            Then(tasks=(remind(3),), waits=(COLLECT,), replaced=("REMIND",)),
            Execute("REMIND"),
            Then(tasks=(remind(4),), waits=(COLLECT,), replaced=("REMIND",)),
        ),
    ),
    Row(
        id="7.3.12-4",
        case="the host is completed",
        reference="the reminder is gone; completing the next external task: COMPLETED",
        fixtures=(f.REMINDERS,),
        steps=(
            Start(tenant=A),
            Complete("COLLECT"),
            Then(waits=(CONFIRM,)),
            Complete("CONFIRM"),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.13-1",
        case="a reminder that fires twice at most is reached",
        reference="the first cycle has occurrence 1",
        fixtures=(f.REMINDERS_BOUNDED,),
        steps=(Start(), Then(tasks=(remind(1),), waits=(COLLECT,))),
    ),
    Row(
        id="7.3.13-2",
        case="it fires twice",
        reference="occurrence 2 after the first; no row after the second; the host untouched",
        fixtures=(f.REMINDERS_BOUNDED,),
        steps=(
            Start(),
            Execute("REMIND"),
            Then(tasks=(remind(2),), waits=(COLLECT,)),
            Execute("REMIND"),
            Then(waits=(COLLECT,)),
        ),
    ),
)

ROWS = (*TIMER_TASKS, *REMINDERS)
