"""Our process files, and what their parts are called in the 52 fixtures of the Java engine."""

from tests.conformance.setup import Fixture


def _own(own: str, java: str, **names: str) -> Fixture:
    return Fixture(own, java, names)


def _invalid(own: str, java: str, **names: str) -> Fixture:
    return Fixture(own, java, names, invalid=True)


EXECUTABLE = _own(
    "own-executable-task", "executable-task-flow", weigh_parcel="calculateRisk", grams="riskScore"
)
EXTERNAL = _own("own-external-task", "external-task-wait")
GATEWAY = _own(
    "own-gateway-bean",
    "exclusive-gateway-decision",
    weigh_parcel="calculateRisk",
    carrier_choice="riskStrategy",
    book_road="notifyApproved",
    book_air="notifyFraud",
    ROAD="APROVADO",
    AIR="FRAUDE",
)
COMMIT_AFTER = _own(
    "own-commit-after",
    "commit-after-forces-async",
    weigh_parcel="taskAHandler",
    print_label="taskBHandler",
)
PARALLEL = _own(
    "own-parallel-join",
    "parallel-gateway-fan-out-join",
    print_label="fastBranchHandler",
    notify_receiver="slowBranchHandler",
    load_parcel="afterJoinHandler",
)
RETRYABLE = _own(
    "own-retryable-task", "retryable-executable-task-flow", weigh_parcel="calculateRisk"
)
ERROR_HANDLERS = _own(
    "own-error-handlers",
    "boundary-error-handler-executable-task",
    declare_goods="processarPagamentoTaskHandler",
    PROHIBITED="SALDO_INSUFICIENTE",
    tell_sender="notificarErroTaskHandler",
)
ERROR_UNMATCHED = _own(
    "own-error-unmatched",
    "boundary-error-handler-unmatched-becomes-incident",
    declare_abroad="pagamentoSemCatchAllTaskHandler",
)

RECALL = _own(
    "own-recall",
    "boundary-catch-event-external-task",
    **{"recall-parcel": "cancelar-task-15649234"},
)
RECALL_OR_DEADLINE = _own(
    "own-recall-or-deadline",
    "boundary-dual-timer-and-catch-event",
    **{"recall-or-late": "cancelar-task-dual-1"},
)
REFUND = _own(
    "own-refund-after-event",
    "boundary-interruptive-guards-downstream-handler",
    refund="realizarPagamentoTaskHandler",
    **{"recall-and-refund": "cancelar-task-guard-1"},
)

_CALL = {"close_shipment": "afterCallHandler", "items": "documents", "item": "document"}
CHILD = _own("own-child", "call-activity-child-process", pack_item="childTaskHandler")
MIDDLE = _own("own-middle", "call-activity-nested-middle-process")
CALL_SINGLE = _own("own-call-single", "call-activity-single-child-parent", **_CALL)
CALL_EACH = _own("own-call-each", "call-activity-multi-child-parent", **_CALL)
CALL_IN_TURN = _own("own-call-in-turn", "call-activity-sequential-parent", **_CALL)
CALL_EACH_DEADLINE = _own("own-call-each-deadline", "call-activity-timeout-parent", **_CALL)
CALL_IN_TURN_DEADLINE = _own(
    "own-call-in-turn-deadline", "call-activity-sequential-timeout-parent", **_CALL
)
CALL_NESTED_DEADLINE = _own(
    "own-call-nested-deadline", "call-activity-nested-timeout-parent", **_CALL
)
CALL_AND_RECALL = _own(
    "own-call-and-recall",
    "call-activity-and-catch-event-independence",
    load_parcel="afterJoinHandler",
    **{"recall-beside-call": "cancelar-coleta-independence"},
)

_PAYMENT = {"order": "orderId", "order-{}-paid": "ORDER_{}_PAID"}
WAIT_PAYMENT = _own("own-wait-payment", "event-catcher-standalone", **_PAYMENT)
WAIT_PAYMENT_DEADLINE = _own(
    "own-wait-payment-deadline", "event-catcher-standalone-timeout", **_PAYMENT
)
WAIT_PAYMENT_THEN = _own(
    "own-wait-payment-then", "event-catcher-standalone-timeout-followup", **_PAYMENT
)
WAIT_TEMPLATE = _own(
    "own-wait-template",
    "event-catcher-standalone-template",
    customer="cpf",
    **{
        "account-{}-opened": "CONTA_CORRENTE_{}_EFETIVADA",
        "Opening of the account": "Efetivacao da Conta Corrente",
    },
)
WAIT_BEAN = _own(
    "own-wait-bean",
    "event-catcher-standalone-bean",
    **_PAYMENT,
    payment_key="orderPaymentCorrelationProvider",
)
WAIT_STATIC = _own(
    "own-wait-static", "event-catcher-standalone-static", **{"gates-open": "GLOBAL_SIGNAL_RECEIVED"}
)

_ITEMS = {"items": "productIds", "item-{}-ready": "PROD_{}_ACTIVATED"}
WAIT_ALL = _own("own-wait-all", "event-catcher-group-all", **_ITEMS)
WAIT_ALL_THEN = _own("own-wait-all-then", "event-catcher-group-all-timeout-followup", **_ITEMS)

_OFFERS = {"carriers": "supplierIds", "carrier-{}-offer": "SUPPLIER_{}_PROPOSAL"}
WAIT_ANY = _own("own-wait-any", "event-catcher-group-any", **_OFFERS)
WAIT_ANY_DEADLINE = _own("own-wait-any-deadline", "event-catcher-group-any-timeout", **_OFFERS)
WAIT_ANY_THEN = _own("own-wait-any-then", "event-catcher-group-any-timeout-followup", **_OFFERS)
WAIT_ALL_TEMPLATE = _own(
    "own-wait-all-template",
    "event-catcher-group-template",
    customer="cpf",
    **{
        "account-{}-opened": "CONTA_CORRENTE_{}_EFETIVADA",
        "card-{}-opened": "CARTAO_CREDITO_{}_EFETIVADA",
        "loan-{}-opened": "EMPRESTIMO_{}_EFETIVADA",
        "Opening: the account": "Efetivacao: Conta Corrente",
        "Opening: the card": "Efetivacao: Cartao de Credito",
    },
)

_NEWS = {"read_news": "afterCatchHandler", "order": "orderId", "order-{}-news": "ORDER_{}_THROWN"}
_TELL = {"order": "orderId"}
CATCH = _own("own-catch", "event-catcher-for-throw-sync", **_NEWS)
CATCH_COMMIT_AFTER = _own("own-catch-commit-after", "event-catcher-for-throw-async", **_NEWS)
THROW = _own("own-throw", "event-thrower-standalone", **_TELL)
THROW_COMMIT_BEFORE = _own("own-throw-commit-before", "event-thrower-standalone-async", **_TELL)

TIMER = _own("own-timer-static", "timer-task-static")
VARIABLE_TIMER = _own("own-timer-variable", "timer-task-variable", pickup_time="slaDuration")
TIMER_EVENTS = _own(
    "own-timer-events",
    "timer-task-with-boundary-events",
    **{"recall-waiting": "cancelar-timer-task-sla"},
)
REMINDERS = _own("own-reminders", "non-interruptive-timer-recurrence")
REMINDERS_BOUNDED = _own("own-reminders-bounded", "non-interruptive-timer-recurrence-bounded")

CATCH_EVENT_ON_CATCHER = _invalid(
    "own-catch-event-on-catcher", "boundary-catch-event-attached-to-event-catcher-invalid"
)
CATCHER_WITH_OTHER_EVENT = _invalid(
    "own-catcher-with-other-event", "event-catcher-boundary-non-timer-invalid"
)
CATCH_EVENT_ON_TASK = _invalid("own-catch-event-on-task", "boundary-catch-event-executable-task")
CALL_NOTHING = _invalid("own-call-nothing", "call-activity-blank-called-element")
CALL_ELEMENT_ONLY = _invalid(
    "own-call-element-only", "call-activity-element-variable-without-collection"
)
CALL_WITH_CATCH_EVENT = _invalid(
    "own-call-with-catch-event", "call-activity-invalid-boundary-catch-event"
)
GROUP_STATIC = _invalid("own-group-static", "event-catcher-group-static-invalid")
CATCHER_WITHOUT_VARIABLE = _invalid(
    "own-catcher-without-variable", "event-catcher-missing-provider-variable-invalid"
)
THROW_WITHOUT_BEAN = _invalid(
    "own-throw-without-bean", "event-thrower-missing-provider-bean-invalid"
)
THROW_UNKNOWN_BEAN = _invalid(
    "own-throw-unknown-bean", "event-thrower-unresolved-provider-bean-invalid"
)
TIMER_ERROR_HANDLER = _invalid(
    "own-timer-error-handler", "timer-task-boundary-error-handler-invalid"
)

ALL_FIXTURES = tuple(each for each in list(globals().values()) if isinstance(each, Fixture))
