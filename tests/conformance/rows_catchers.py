"""Sections 7.3.14 to 7.3.16: event catchers, groups of keys, event throwers."""

from kikwiflow_worker.engine.draft import StepFailedError
from kikwiflow_worker.errors import NotFoundError
from tests.conformance import fixtures as f
from tests.conformance.looks import ENDED, NothingStored, Then
from tests.conformance.row import Difference, Row
from tests.conformance.setup import Gives
from tests.conformance.steps import Correlate, Execute, Start

A, B, C = "tenant-a", "tenant-b", "tenant-c"
PAID = "order-9988-paid"
PAYMENT = f"WAIT_PAYMENT EVENT_CATCHER_STANDALONE CREATED {PAID}"
GATES = "WAIT_GATES EVENT_CATCHER_STANDALONE CREATED gates-open"
DEADLINE = "DEADLINE INTERRUPTIVE_TIMER PENDING due=1 day, 0:00:00"
SHIP = "SHIP EXTERNAL_TASK CREATED"
ORDER = {"order": 9988}

ALONE = (
    Row(
        id="7.3.14-1",
        case="an event catcher is reached",
        reference="one external row of type EVENT_CATCHER_STANDALONE with the key of prefix, variable and suffix",
        fixtures=(f.WAIT_PAYMENT,),
        steps=(Start(ORDER, tenant=A), Then(waits=(PAYMENT,))),
    ),
    Row(
        id="7.3.14-2",
        case="its key is correlated with a variable",
        reference="COMPLETED, no row",
        fixtures=(f.WAIT_PAYMENT,),
        steps=(
            Start(ORDER, tenant=A),
            Correlate(PAID, {"amount": 5}, tenant=A),
            Then(status=ENDED, variables={"order": 9988, "amount": 5}),
        ),
    ),
    Row(
        id="7.3.14-3",
        case="a key that nobody waits for is correlated",
        reference="not found",
        fixtures=(f.WAIT_PAYMENT,),
        steps=(
            Start(ORDER, tenant=A),
            Correlate("order-unknown-paid", tenant=A, refused=NotFoundError),
            Then(waits=(PAYMENT,)),
        ),
    ),
    Row(
        id="7.3.14-4",
        case="the right key is correlated twice",
        reference="the second is not found",
        fixtures=(f.WAIT_PAYMENT,),
        steps=(
            Start(ORDER, tenant=A),
            Correlate(PAID, tenant=A),
            Correlate(PAID, tenant=A, refused=NotFoundError),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.14-5",
        case="key and label are made of a template",
        reference="the row has both; correlating the key: COMPLETED",
        fixtures=(f.WAIT_TEMPLATE,),
        steps=(
            Start({"customer": "12345"}, tenant=A),
            Then(
                waits=(
                    "WAIT_ACCOUNT EVENT_CATCHER_STANDALONE CREATED account-12345-opened (Opening of the account)",
                )
            ),
            Correlate("account-12345-opened", tenant=A),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.14-6",
        case="the deadline of a catcher passes",
        reference="COMPLETED, no row; its key is not found any more",
        fixtures=(f.WAIT_PAYMENT_DEADLINE,),
        steps=(
            Start(ORDER, tenant=A),
            Then(tasks=(DEADLINE,), waits=(PAYMENT,)),
            Execute("DEADLINE"),
            Then(status=ENDED),
            Correlate(PAID, tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.14-7",
        case="a catcher with a deadline is correlated",
        reference="ACTIVE at the next node, the deadline is gone",
        fixtures=(f.WAIT_PAYMENT_THEN,),
        steps=(Start(ORDER, tenant=A), Correlate(PAID, tenant=A), Then(waits=(SHIP,))),
    ),
    Row(
        id="7.3.14-8",
        case="a provider gives key and label",
        reference="the row has both; correlating the key: COMPLETED",
        fixtures=(f.WAIT_BEAN,),
        handlers={"payment_key": Gives((("order-4321-paid", "Payment of order 4321"),))},
        steps=(
            Start({"order": 4321}, tenant=A),
            Then(
                waits=(
                    "WAIT_PAYMENT EVENT_CATCHER_STANDALONE CREATED order-4321-paid (Payment of order 4321)",
                )
            ),
            Correlate("order-4321-paid", tenant=A),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.14-9",
        case="instances of two tenants wait for the same fixed key",
        reference="a third tenant finds nobody; each tenant's message ends its own instance only",
        fixtures=(f.WAIT_STATIC,),
        steps=(
            Start(name="a", tenant=A),
            Start(name="b", tenant=B),
            Correlate("gates-open", tenant=C, refused=NotFoundError),
            Then(of="a", waits=(GATES,)),
            Correlate("gates-open", tenant=A),
            Then(of="a", status=ENDED),
            Then(of="b", waits=(GATES,)),
            Correlate("gates-open", tenant=B),
            Then(of="b", status=ENDED),
        ),
    ),
)

ITEMS = {"items": ["CARD_123", "LOAN_456"]}
CARD, LOAN = "item-CARD_123-ready", "item-LOAN_456-ready"


def key_row(node: str, key: str, status: str = "CREATED") -> str:
    """Return the row of one key of a group."""
    return f"{node} EVENT_CATCHER_CHILD {status} {key}"


def group_row(node: str, pending: int) -> str:
    """Return the row of a group."""
    return f"{node} EVENT_CATCHER_PARENT CREATED pending={pending}"


TWO_ITEMS = (
    group_row("WAIT_ITEMS", 2),
    key_row("WAIT_ITEMS", CARD),
    key_row("WAIT_ITEMS", LOAN),
)
ONE_ITEM = (
    group_row("WAIT_ITEMS", 1),
    key_row("WAIT_ITEMS", CARD, "CORRELATED"),
    key_row("WAIT_ITEMS", LOAN),
)
OFFERS = tuple(f"carrier-{name}-offer" for name in "ABC")
THREE_OFFERS = (group_row("WAIT_OFFER", 3), *(key_row("WAIT_OFFER", key) for key in OFFERS))
CARRIERS = {"carriers": ["A", "B", "C"]}

ALL = (
    Row(
        id="7.3.15-1",
        case="a group of two keys is reached",
        reference="two pending keys, one group",
        fixtures=(f.WAIT_ALL,),
        steps=(Start(ITEMS, tenant=A), Then(tasks=(DEADLINE,), waits=TWO_ITEMS)),
    ),
    Row(
        id="7.3.15-2",
        case="both keys are correlated, one after the other",
        reference="ACTIVE with one pending and one correlated key; then COMPLETED, nothing left",
        fixtures=(f.WAIT_ALL,),
        steps=(
            Start(ITEMS, tenant=A),
            Correlate(CARD, tenant=A),
            Then(tasks=(DEADLINE,), waits=ONE_ITEM),
            Correlate(LOAN, tenant=A),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.15-3",
        case="the first key is correlated twice",
        reference="the second is not found",
        fixtures=(f.WAIT_ALL,),
        steps=(
            Start(ITEMS, tenant=A),
            Correlate(CARD, tenant=A),
            Correlate(CARD, tenant=A, refused=NotFoundError),
            Then(tasks=(DEADLINE,), waits=ONE_ITEM),
        ),
    ),
    Row(
        id="7.3.15-4",
        case="one key is correlated, then the deadline passes",
        reference="COMPLETED; pending and correlated keys are gone",
        fixtures=(f.WAIT_ALL,),
        steps=(
            Start(ITEMS, tenant=A),
            Correlate(CARD, tenant=A),
            Execute("DEADLINE"),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.15-5",
        case="the list of keys is empty",
        reference="the start is refused (IllegalStateException)",
        fixtures=(f.WAIT_ALL,),
        steps=(Start({"items": []}, tenant=A, refused=StepFailedError), NothingStored()),
        differs=Difference(
            "the start is refused with `StepFailedError`, nothing is stored",
            "one error type for every node that fails in a call",
        ),
    ),
    Row(
        id="7.3.15-6",
        case="the deadline passes at once",
        reference="COMPLETED, nothing left",
        fixtures=(f.WAIT_ALL,),
        steps=(Start(ITEMS, tenant=A), Execute("DEADLINE"), Then(status=ENDED)),
    ),
    Row(
        id="7.3.15-7",
        case="both keys of a group with a deadline are correlated",
        reference="ACTIVE at the next node, the deadline is gone",
        fixtures=(f.WAIT_ALL_THEN,),
        steps=(
            Start(ITEMS, tenant=A),
            Correlate(LOAN, tenant=A),
            Correlate(CARD, tenant=A),
            Then(waits=(SHIP,)),
        ),
    ),
)

ANY = (
    Row(
        id="7.3.15-8",
        case="one of three keys is correlated, and any is enough",
        reference="three pending keys; then COMPLETED, nothing left",
        fixtures=(f.WAIT_ANY,),
        steps=(
            Start(CARRIERS, tenant=A),
            Then(waits=THREE_OFFERS),
            Correlate(OFFERS[1], tenant=A),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.15-9",
        case="another key is correlated after the first",
        reference="not found",
        fixtures=(f.WAIT_ANY,),
        steps=(
            Start({"carriers": ["A", "B"]}, tenant=A),
            Correlate(OFFERS[0], tenant=A),
            Correlate(OFFERS[1], tenant=A, refused=NotFoundError),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.15-10",
        case="the deadline passes",
        reference="COMPLETED, nothing left; a key is not found any more",
        fixtures=(f.WAIT_ANY_DEADLINE,),
        steps=(
            Start(CARRIERS, tenant=A),
            Then(tasks=(DEADLINE,), waits=THREE_OFFERS),
            Execute("DEADLINE"),
            Then(status=ENDED),
            Correlate(OFFERS[0], tenant=A, refused=NotFoundError),
        ),
    ),
    Row(
        id="7.3.15-11",
        case="a key of a group with a deadline is correlated",
        reference="ACTIVE at the next node, the deadline is gone",
        fixtures=(f.WAIT_ANY_THEN,),
        steps=(
            Start(CARRIERS, tenant=A),
            Correlate(OFFERS[1], tenant=A),
            Then(waits=("ACCEPT EXTERNAL_TASK CREATED",)),
        ),
    ),
    Row(
        id="7.3.15-12",
        case="a group of keys that are made of templates",
        reference="two pending keys; ACTIVE after the first, COMPLETED after the second",
        fixtures=(f.WAIT_ALL_TEMPLATE,),
        steps=(
            Start({"customer": "12345"}, tenant=A),
            Then(
                waits=(
                    group_row("WAIT_OPENED", 2),
                    key_row("WAIT_OPENED", "account-12345-opened (Opening: the account)"),
                    key_row("WAIT_OPENED", "card-12345-opened (Opening: the card)"),
                )
            ),
            Correlate("account-12345-opened", tenant=A),
            Then(
                waits=(
                    group_row("WAIT_OPENED", 1),
                    key_row(
                        "WAIT_OPENED", "account-12345-opened (Opening: the account)", "CORRELATED"
                    ),
                    key_row("WAIT_OPENED", "card-12345-opened (Opening: the card)"),
                )
            ),
            Correlate("card-12345-opened", tenant=A),
            Then(status=ENDED),
        ),
    ),
    Row(
        id="7.3.15-13",
        case="a key of the right form that is not in the group is correlated",
        reference="not found",
        fixtures=(f.WAIT_ALL_TEMPLATE,),
        steps=(
            Start({"customer": "99999"}, tenant=A),
            Correlate("loan-99999-opened", tenant=A, refused=NotFoundError),
        ),
    ),
)


def _news(order: int) -> str:
    return f"WAIT_NEWS EVENT_CATCHER_STANDALONE CREATED order-{order}-news"


THROWING = (
    Row(
        id="7.3.16-1",
        case="a thrower finds a waiting catcher with a handler after it",
        reference="the handler runs once, within the thrower's start; both instances are completed",
        fixtures=(f.CATCH, f.THROW),
        steps=(
            Start({"order": 1001}, tenant=A),
            Then(waits=(_news(1001),)),
            Start({"order": 1001}, name="thrower", key="own-throw", tenant=A),
            Then(of="thrower", status=ENDED, ran=("read_news",)),
            Then(status=ENDED, ran=("read_news",)),
        ),
    ),
    Row(
        id="7.3.16-2",
        case="the catcher has a commit after it",
        reference="no handler ran; the catcher's instance has one row of the next task; executing it: COMPLETED",
        fixtures=(f.CATCH_COMMIT_AFTER, f.THROW),
        steps=(
            Start({"order": 1002}, tenant=A),
            Start({"order": 1002}, name="thrower", key="own-throw", tenant=A),
            Then(of="thrower", status=ENDED),
            Then(tasks=("READ_NEWS STANDARD PENDING",)),
            Execute("READ_NEWS"),
            Then(status=ENDED, ran=("read_news",)),
        ),
    ),
    Row(
        id="7.3.16-3",
        case="the thrower has a commit before it",
        reference="nothing happens at the start; executing its row of type EVENT_THROW: the handler runs once, both are completed",
        fixtures=(f.CATCH, f.THROW_COMMIT_BEFORE),
        steps=(
            Start({"order": 1003}, tenant=A),
            Start({"order": 1003}, name="thrower", key="own-throw-commit-before", tenant=A),
            Then(waits=(_news(1003),)),
            Then(of="thrower", tasks=("TELL EVENT_THROW PENDING",)),
            Execute("TELL", of="thrower"),
            Then(of="thrower", status=ENDED, ran=("read_news",)),
            Then(status=ENDED, ran=("read_news",)),
        ),
    ),
    Row(
        id="7.3.16-4",
        case="nobody waits for the thrown key",
        reference="the start is refused (TaskNotFoundException)",
        fixtures=(f.THROW,),
        steps=(
            Start({"order": "nobody"}, tenant=A, refused=StepFailedError),
            NothingStored(),
        ),
        differs=Difference(
            "the start is refused with `StepFailedError` that names the thrower, nothing is stored",
            "one error type for every node that fails in a call",
        ),
    ),
)

ROWS = (*ALONE, *ALL, *ANY, *THROWING)
