"""The sample handlers, called as what they are: functions of their context."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from kikwiflow_handlers import expenses, invoices, orders, quotes, shipping, stock
from kikwiflow_handlers.bank import DIRECTORY_VARIABLE, Bank
from kikwiflow_worker.handler import (
    EvaluationContext,
    ExecutionContext,
    Fatal,
    ProcessError,
    RetryLater,
    StepView,
)
from kikwiflow_worker.model.definition import parse_definition
from kikwiflow_worker.model.nodes import ExclusiveGateway, ExecutableTaskNode, TimerTaskNode
from kikwiflow_worker.model.variables import IncrementVariable
from kikwiflow_worker.operations.deployment import check_definition
from kikwiflow_worker.worker.registry import load_registry, registry_of

PROCESSES = sorted((Path(__file__).parents[2] / "demo" / "processes").glob("*.kikwi"))
LINES = {"lines": [{"pieces": 2, "price": "400"}, {"pieces": 1, "price": Decimal("400.10")}]}


class StillClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime(2026, 3, 2, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def a_view(*, attempt: int = 1, key: str = "key-1", **properties: str) -> StepView:
    return StepView(
        instance_id="instance-1",
        business_key="ORDER-1",
        business_value=None,
        tenant_id=None,
        definition_key="order-fulfilment",
        definition_version=1,
        node_id="NODE",
        node_name=None,
        attempt=attempt,
        idempotency_key=key,
        extension_properties=properties,
    )


def a_context(variables: Mapping[str, object], view: StepView | None = None) -> ExecutionContext:
    context = ExecutionContext(view or a_view(), {})
    for name, value in variables.items():
        context.set(name, value)
    return ExecutionContext(context.view, context.variables)


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    """The bank that handlers of this test share."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "bank"))
    return Bank(tmp_path / "bank")


def test_a_quote_from_1000_on_has_a_discount_of_five_per_cent() -> None:
    quote = quotes.calculate_quote(a_context(LINES))

    assert quote == {"discount": Decimal("60.00"), "total": Decimal("1140.10")}


def test_a_quote_below_1000_has_no_discount() -> None:
    quote = quotes.calculate_quote(a_context({"lines": [{"pieces": 3, "price": 10}]}))

    assert quote == {"discount": Decimal("0.00"), "total": Decimal("30.00")}


@pytest.mark.parametrize("lines", [None, [], "two", [3], [{"pieces": 1}], [{"price": "a lot"}]])
def test_lines_that_cannot_be_read_are_fatal_since_no_attempt_can_help(lines: object) -> None:
    context = a_context({"lines": lines})

    with pytest.raises(Fatal, match="retry the incident"):
        quotes.calculate_quote(context)


async def test_a_warehouse_adds_its_pieces_with_an_increment_so_that_branches_lose_nothing() -> (
    None
):
    context = a_context({"article": "bolt"}, a_view(warehouse="north"))

    await stock.check_stock(context)

    pieces = stock.pieces_in("north", "bolt")
    assert IncrementVariable("available", pieces) in context.changes
    assert context["answers"] == [{"warehouse": "north", "pieces": pieces}]


async def test_a_node_without_a_warehouse_is_fatal() -> None:
    with pytest.raises(Fatal, match="extension property 'warehouse'"):
        await stock.check_stock(a_context({"article": "bolt"}))


def test_the_warehouse_with_the_most_pieces_is_chosen_and_among_equals_the_first_by_name() -> None:
    answers = [
        {"warehouse": "west", "pieces": 9},
        {"warehouse": "north", "pieces": 4},
        {"warehouse": "east", "pieces": 9},
    ]
    context = a_context({"answers": answers})

    stock.choose_warehouse(context)

    assert dict(context) == {"warehouse": "east"}


async def test_the_manager_reads_who_wants_how_much() -> None:
    context = a_context({"employee": "Rita", "amount": Decimal("12.5")})

    await expenses.check_expense(context)

    assert context["summary"] == "Rita asks for 12.50 EUR (ORDER-1)"


async def test_an_expense_of_nothing_is_a_business_error() -> None:
    with pytest.raises(ProcessError) as raised:
        await expenses.check_expense(a_context({"employee": "Rita", "amount": 0}))

    assert raised.value.code == "INVALID_EXPENSE"


def test_an_expense_that_is_paid_again_with_the_same_key_moves_money_once(bank: Bank) -> None:
    variables = {"amount": Decimal(50)}

    first = expenses.pay_expense(a_context(variables, a_view(attempt=1)))
    second = expenses.pay_expense(a_context(variables, a_view(attempt=2)))

    (transfer,) = bank.transfers()
    assert first == second == {"outcome": "PAID", "receipt": transfer.receipt}
    assert (transfer.amount, transfer.requests) == (Decimal(50), 2)


def test_two_steps_are_two_transfers(bank: Bank) -> None:
    for key in ("key-1", "key-2"):
        orders.charge_card(a_context({"total": Decimal(50)}, a_view(key=key)))

    assert len(bank.transfers()) == 2


def test_a_card_is_refused_above_its_limit_and_nothing_is_charged(bank: Bank) -> None:
    with pytest.raises(ProcessError) as raised:
        orders.charge_card(a_context({"total": Decimal(10_001)}))

    assert raised.value.code == "CARD_REFUSED"
    assert bank.transfers() == []


async def test_an_employee_who_gets_nothing_is_told() -> None:
    assert await expenses.inform_employee(a_context({})) == {"outcome": "REFUSED"}


async def test_the_mail_server_fails_as_often_as_the_node_says() -> None:
    def view(attempt: int) -> StepView:
        return a_view(attempt=attempt, failingAttempts="2")

    for attempt in (1, 2):
        with pytest.raises(ConnectionError):
            await invoices.send_invoice(a_context({}, view(attempt)))
    third = a_context({}, view(3))
    await invoices.send_invoice(third)

    assert third["sentAtAttempt"] == 3


async def test_an_order_is_added_up() -> None:
    context = a_context(LINES)

    await orders.validate_order(context)

    assert (context["total"], context["pieces"]) == (Decimal("1200.10"), 3)


@pytest.mark.parametrize(
    ("is_new", "total", "risk"), [(True, 1000, "HIGH"), (True, 999, "LOW"), (False, 1000, "LOW")]
)
async def test_only_large_orders_of_new_customers_are_risky(
    is_new: bool, total: int, risk: str
) -> None:
    context = EvaluationContext(a_view(), {"isNewCustomer": is_new, "total": total})

    assert await orders.assess_risk(context) == risk


@pytest.mark.parametrize(("reworks", "is_ok"), [(0, False), (1, False), (2, True)])
async def test_goods_are_good_once_they_were_reworked_often_enough(
    reworks: int, is_ok: bool
) -> None:
    context = a_context({"defects": 2, "reworkCount": reworks})

    assert await shipping.check_quality(context) == {"qualityOk": is_ok}


async def test_reworking_counts() -> None:
    context = a_context({"reworkCount": 1})

    await shipping.rework_items(context)

    assert context["reworkCount"] == 2


def test_picking_stops_when_its_step_no_longer_matters() -> None:
    context = a_context(LINES, a_view(simulatedSeconds="3600"))
    context.cancel()

    shipping.pick_items(context)

    assert not context.changes


def test_the_throttle_admits_its_limit_in_each_second() -> None:
    clock = StillClock()
    throttle = shipping.Throttle(clock)

    first = [throttle.admits(2) for _ in range(3)]
    clock.seconds = 1.0

    assert first == [True, True, False]
    assert throttle.admits(2)


async def test_a_carrier_that_takes_no_more_is_asked_again_later() -> None:
    with pytest.raises(RetryLater) as raised:
        await shipping.book_carrier(a_context({}, a_view(bookingsPerSecond="0")))

    assert raised.value.delay == timedelta(seconds=0.5)


@pytest.mark.parametrize(("is_express", "wait"), [(True, "PT1S"), (False, "PT3S")])
def test_the_van_for_an_express_order_comes_sooner(is_express: bool, wait: str) -> None:
    view = a_view(expressWait="PT1S", standardWait="PT3S")

    assert shipping.next_pickup(EvaluationContext(view, {"isExpress": is_express})) == wait


async def test_a_hand_over_is_counted() -> None:
    context = a_context({})

    assert await shipping.hand_over(context) == {"outcome": "DELIVERED"}
    assert context["handOvers"] == 1


def test_all_modules_are_offered_by_entry_points() -> None:
    modules = (quotes, stock, expenses, invoices, orders, shipping)

    offered = load_registry(["kikwiflow-handlers"]).capabilities

    assert offered.stored == registry_of(modules).capabilities.stored


@pytest.mark.parametrize("path", PROCESSES, ids=lambda path: path.stem)
def test_a_demonstration_process_is_valid_without_warnings(path: Path) -> None:
    assert check_definition(path.read_bytes(), name=path.name).warnings == ()


def test_the_demonstration_processes_use_every_sample_handler_and_no_other() -> None:
    used = set()
    for path in PROCESSES:
        for node in parse_definition(path.read_bytes()).file.flow_nodes.values():
            match node:
                case ExecutableTaskNode():
                    used.add(node.handler_name)
                case ExclusiveGateway() | TimerTaskNode() if node.provider_bean:
                    used.add(node.provider_bean)
                case _:
                    pass

    offered = {handler.capability.name for handler in load_registry(["kikwiflow-handlers"])}

    assert used == offered
