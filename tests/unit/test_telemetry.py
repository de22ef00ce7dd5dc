import io
import json
import logging
import re
from collections.abc import Iterator

import pytest
import structlog
from prometheus_client import CollectorRegistry

from kikwiflow_worker.telemetry import (
    Event,
    LogFormat,
    LogLevel,
    Metrics,
    configure_logging,
    emit,
    events_reference,
    mask_credentials,
    metrics_reference,
    reset_logging,
)

SECRET = "s3cr3t"
URI = f"mongodb://user:{SECRET}@db.example/"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level, driver_level = (
        list(root.handlers),
        root.level,
        logging.getLogger("pymongo").level,
    )
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.getLogger("pymongo").setLevel(driver_level)
    reset_logging()
    structlog.contextvars.clear_contextvars()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def fail(message: str) -> None:
    raise ValueError(message)


def configured(
    level: LogLevel = LogLevel.INFO, log_format: LogFormat = LogFormat.JSON
) -> io.StringIO:
    stream = io.StringIO()
    configure_logging(level, log_format, stream)
    return stream


def test_an_event_is_its_name() -> None:
    assert f"{Event.TASK_CLAIMED}" == "task.claimed"
    assert str(Event.LOCK_LOST) == "lock.lost"


@pytest.mark.parametrize("event", list(Event))
def test_each_event_is_named_noun_and_verb_and_has_a_meaning(event: Event) -> None:
    assert re.fullmatch(r"[a-z]+\.[a-z_]+", event.value)
    assert event.meaning.endswith(".")


@pytest.mark.field_case("S-86")
def test_an_event_is_logged_at_its_own_level() -> None:
    stream = configured()

    emit(Event.INCIDENT_OPENED, task_id="t1")
    emit(Event.TASK_CLAIMED, task_id="t1")

    assert [(line["event"], line["level"], line["task_id"]) for line in lines(stream)] == [
        ("incident.opened", "error", "t1")
    ]


def test_a_json_line_begins_with_the_event_and_has_a_utc_timestamp() -> None:
    stream = configured()

    emit(Event.WORKER_STARTED, worker_id="w1", attempt=1)

    (line,) = lines(stream)
    assert list(line)[:3] == ["event", "level", "timestamp"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", str(line["timestamp"]))
    assert line["attempt"] == 1


def test_a_standard_library_record_has_the_same_shape_and_the_context() -> None:
    stream = configured()
    structlog.contextvars.bind_contextvars(task_id="t1")

    logging.getLogger("a.handler").warning("said %s", "hello")

    (line,) = lines(stream)
    assert list(line)[:3] == ["event", "level", "timestamp"]
    assert (line["event"], line["level"], line["task_id"]) == ("said hello", "warning", "t1")


def test_auto_is_console_on_a_terminal() -> None:
    stream = Terminal()
    configure_logging(LogLevel.INFO, LogFormat.AUTO, stream)

    emit(Event.WORKER_STARTED)

    assert "worker.started" in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_auto_is_json_elsewhere() -> None:
    stream = configured(log_format=LogFormat.AUTO)

    emit(Event.WORKER_STARTED)

    assert lines(stream)[0]["event"] == "worker.started"


def test_a_console_line_with_an_exception_is_written_without_a_warning() -> None:
    stream = configured(log_format=LogFormat.CONSOLE)

    try:
        fail(URI)
    except ValueError:
        logging.getLogger("x").exception("failed")

    assert "ValueError" in stream.getvalue()
    assert SECRET not in stream.getvalue()


def test_the_drivers_lines_are_written_from_warning_on() -> None:
    stream = configured(LogLevel.DEBUG)

    logging.getLogger("pymongo.command").info("chatter")
    logging.getLogger("pymongo.command").warning("trouble")

    assert [line["event"] for line in lines(stream)] == ["trouble"]


def test_configuring_again_replaces_stream_and_level_for_loggers_that_exist() -> None:
    first = configured(LogLevel.INFO)
    logger = structlog.get_logger()
    logger.info("before")
    second = configured(LogLevel.ERROR)

    logger.info("dropped")
    logger.error("after")

    assert [line["event"] for line in lines(first)] == ["before"]
    assert [line["event"] for line in lines(second)] == ["after"]


def test_no_part_of_a_line_shows_a_password() -> None:
    stream = configured()

    try:
        fail(f"cannot reach {URI}")
    except ValueError as error:
        structlog.get_logger().exception(
            URI, plain=URI, nested={"uris": [URI, (URI,)]}, error=error
        )
        logging.getLogger("x").exception("failed for %s", URI)

    assert len(lines(stream)) == 2
    assert "Traceback" in str(lines(stream)[1]["exception"])
    assert SECRET not in stream.getvalue()
    assert "user:***@db.example" in stream.getvalue()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("mongodb://u:p@h/", "mongodb://u:***@h/"),
        ("mongodb+srv://u:p@h/", "mongodb+srv://u:***@h/"),
        ("to mongodb://u:p/a@b@h/db now", "to mongodb://u:***@h/db now"),
        (
            "mongodb://h:27017/?tlsCertificateKeyFilePassword=p&a=1",
            "mongodb://h:27017/?tlsCertificateKeyFilePassword=***&a=1",
        ),
        ("https://u:p@proxy", "https://u:***@proxy"),
        ("mongodb://h:27017/db", "mongodb://h:27017/db"),
        ("a:b@c", "a:b@c"),
    ],
)
def test_credentials_of_a_uri_are_masked(text: str, masked: str) -> None:
    assert mask_credentials(text) == masked


def test_two_sets_of_metrics_do_not_share_numbers() -> None:
    one = Metrics(CollectorRegistry(), version="1", instance="a")
    other = Metrics(CollectorRegistry(), version="1", instance="b")

    one.steps.claimed(is_rescued=False)

    assert b"kikwiflow_tasks_claimed_total 1.0" in one.render()
    assert b"kikwiflow_tasks_claimed_total 0.0" in other.render()


def test_metrics_say_who_runs() -> None:
    text = Metrics(CollectorRegistry(), version="1.2", instance="a").render().decode()

    assert 'kikwiflow_worker_info{instance="a",version="1.2"} 1.0' in text


def test_labelled_metrics_take_their_documented_labels() -> None:
    metrics = Metrics(CollectorRegistry(), version="1", instance="a")

    metrics.slots.labels(state="free").set(4)
    metrics.steps.ended(definition="d", node="n", outcome="completed", duration_s=0.2)
    metrics.steps.claimed(is_rescued=True)
    metrics.steps.released_unknown(2)
    metrics.lock_renewals.labels(result="ok").inc()

    text = metrics.render().decode()
    assert 'kikwiflow_worker_slots{state="free"} 4.0' in text
    assert (
        'kikwiflow_task_duration_seconds_count{definition="d",node="n",outcome="completed"} 1.0'
        in text
    )
    assert 'kikwiflow_task_attempts_total{outcome="completed"} 1.0' in text
    assert 'kikwiflow_tasks_reclaimed_total{reason="lock_expired"} 1.0' in text
    assert 'kikwiflow_tasks_reclaimed_total{reason="reply_lost"} 2.0' in text


def test_the_metrics_reference_names_exactly_what_is_exposed() -> None:
    exposed = Metrics(CollectorRegistry(), version="1", instance="a").render().decode()

    families = set(re.findall(r"^# TYPE (\S+) (?:counter|gauge|histogram)", exposed, re.MULTILINE))
    documented = set(re.findall(r"^\| `(\S+)` \|", metrics_reference(), re.MULTILINE))
    assert documented == {name for name in families if not name.endswith("_created")}
    assert len(documented) == 23


def test_the_events_reference_has_a_row_for_each_event() -> None:
    rows = events_reference().splitlines()[2:]

    assert len(rows) == len(Event)
    assert "| `lock.lost` | warning |" in events_reference()


@pytest.mark.field_case("S-86")
def test_expected_races_are_no_warnings() -> None:
    expected = {Event.CLAIM_LOST, Event.COMMIT_CONFLICTED, Event.MESSAGE_KEPT, Event.TASK_PARKED}

    assert {event.level for event in expected} <= {LogLevel.DEBUG, LogLevel.INFO}


class BrokenStream(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


def test_a_stream_that_is_gone_stops_no_work() -> None:
    configure_logging(LogLevel.INFO, LogFormat.JSON, BrokenStream())

    emit(Event.WORKER_STARTED)


def test_lines_below_the_level_are_left_out_and_come_back_with_it() -> None:
    quiet = configured(LogLevel.WARNING)
    emit(Event.TASK_COMPLETED)
    loud = configured(LogLevel.DEBUG)
    emit(Event.TASK_CLAIMED)

    assert quiet.getvalue() == ""
    assert [line["event"] for line in lines(loud)] == ["task.claimed"]
