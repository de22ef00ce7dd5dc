import http.client
import json
import socket
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.telemetry import Metrics
from kikwiflow_worker.worker.health import HealthServer, HealthState


class StillClock:
    """Stands still until moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.seconds, UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def state(clock: StillClock) -> HealthState:
    return HealthState(clock, beat_limit_s=5, progress_limit_s=60)


def a_server(state: HealthState, address: str = "127.0.0.1:0") -> HealthServer:
    return HealthServer(address, state, Metrics(CollectorRegistry(), version="1", instance="a"))


@pytest.fixture
def server(state: HealthState) -> Iterator[HealthServer]:
    server = a_server(state)
    server.start()
    yield server
    server.stop()


def ask(
    server: HealthServer, path: str, method: str = "GET"
) -> tuple[int, bytes, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.read(), response
    finally:
        connection.close()


def make_ready(state: HealthState) -> None:
    state.set_started()
    state.set_store_reachable(is_reachable=True)


def test_a_new_worker_lives_and_is_not_ready(state: HealthState) -> None:
    assert state.liveness().is_ok
    assert state.readiness().reasons == (
        "the worker has not started yet",
        "the database is not reachable",
    )


def test_readiness_is_answered_after_a_look_at_the_database(
    server: HealthServer, state: HealthState
) -> None:
    make_ready(state)
    state.before_readiness(lambda: state.set_store_reachable(is_reachable=False))

    assert state.last_readiness().is_ok, "what is known is told without a look"
    assert ask(server, "/readyz")[0] == 503

    state.before_readiness(None)
    state.set_store_reachable(is_reachable=True)

    assert ask(server, "/readyz")[0] == 200


def test_a_started_worker_with_a_database_is_ready(state: HealthState) -> None:
    make_ready(state)

    assert state.readiness().is_ok


@pytest.mark.field_case("S-52")
def test_an_outage_of_the_database_ends_readiness_and_not_liveness(state: HealthState) -> None:
    make_ready(state)

    state.set_store_reachable(is_reachable=False)

    assert state.readiness().reasons == ("the database is not reachable",)
    assert state.liveness().is_ok


def test_a_draining_worker_is_not_ready(state: HealthState) -> None:
    make_ready(state)

    state.set_draining()

    assert state.readiness().reasons == ("the worker is draining",)


def test_a_blocked_loop_ends_liveness_until_the_next_beat(
    state: HealthState, clock: StillClock
) -> None:
    clock.seconds += 6

    assert state.liveness().reasons == ("the event loop has been blocked for 6 s",)

    state.beat()
    assert state.liveness().is_ok


@pytest.mark.field_case("S-53")
def test_an_acquirer_without_progress_ends_liveness_until_it_goes_on(
    state: HealthState, clock: StillClock
) -> None:
    make_ready(state)
    clock.seconds += 61
    state.beat()

    assert state.liveness().reasons == ("the acquirer has made no progress for 61 s",)

    state.progress()
    assert state.liveness().is_ok


def test_no_progress_is_expected_before_the_start(state: HealthState, clock: StillClock) -> None:
    clock.seconds += 61
    state.beat()

    assert state.liveness().is_ok

    state.set_started()
    assert state.liveness().is_ok


def test_no_progress_is_expected_while_draining(state: HealthState, clock: StillClock) -> None:
    make_ready(state)
    state.set_draining()
    clock.seconds += 61
    state.beat()

    assert state.liveness().is_ok


def test_the_probes_answer_in_json(server: HealthServer, state: HealthState) -> None:
    make_ready(state)

    live, ready = ask(server, "/livez"), ask(server, "/readyz?verbose")

    assert (live[0], json.loads(live[1])) == (200, {"status": "ok", "reasons": []})
    assert (ready[0], json.loads(ready[1])) == (200, {"status": "ok", "reasons": []})


def test_a_probe_that_fails_says_why(
    server: HealthServer, state: HealthState, clock: StillClock
) -> None:
    clock.seconds += 6

    live, ready = ask(server, "/livez"), ask(server, "/readyz")

    assert (live[0], ready[0]) == (503, 503)
    assert json.loads(live[1])["reasons"] == ["the event loop has been blocked for 6 s"]
    assert json.loads(ready[1])["status"] == "unavailable"


def test_metrics_are_served_as_prometheus_text(server: HealthServer) -> None:
    status, body, response = ask(server, "/metrics")

    assert status == 200
    assert response.headers["Content-Type"].startswith("text/plain")
    assert b"kikwiflow_tasks_claimed_total 0.0" in body


def test_head_answers_without_a_body(server: HealthServer) -> None:
    status, body, response = ask(server, "/livez", "HEAD")

    assert (status, body) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_another_path_is_not_found(server: HealthServer) -> None:
    assert ask(server, "/")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_another_method_is_not_allowed(server: HealthServer, method: str) -> None:
    status, _, response = ask(server, "/livez", method)

    assert (status, response.headers["Allow"]) == (405, "GET, HEAD")


def test_an_idle_client_does_not_keep_others_waiting(server: HealthServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=5):
        assert ask(server, "/livez")[0] == 200


def test_more_clients_than_the_bound_are_turned_away_and_places_come_back(
    server: HealthServer,
) -> None:
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=5) for _ in range(16)]
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as refused:
        assert refused.recv(1) == b""

    for client in idle:
        client.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
        while client.recv(4096):
            pass
        client.close()

    assert ask(server, "/livez")[0] == 200


def test_nothing_is_written_about_requests(
    server: HealthServer, capfd: pytest.CaptureFixture[str]
) -> None:
    ask(server, "/nowhere")
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as client:
        client.sendall(b"nonsense\r\n\r\n")
        client.recv(4096)

    assert capfd.readouterr() == ("", "")


def test_starting_twice_keeps_the_port(server: HealthServer) -> None:
    port = server.port

    server.start()

    assert server.port == port


def test_a_stopped_server_answers_no_more_and_can_start_again(server: HealthServer) -> None:
    port = server.port

    server.stop()
    server.stop()

    assert server.port == 0
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection(("127.0.0.1", port), timeout=5),
    ):
        pass
    server.start()
    assert ask(server, "/livez")[0] == 200


def test_a_port_in_use_is_a_configuration_error_with_the_address(
    server: HealthServer, state: HealthState
) -> None:
    address = f"127.0.0.1:{server.port}"

    with pytest.raises(
        ConfigurationError, match=rf"health address {address} cannot be used.*in use"
    ):
        a_server(state, address).start()


@pytest.mark.parametrize(
    "address", ["8080", "host:", "127.0.0.1:x", "127.0.0.1:99999", "192.0.2.1:0"]
)
def test_an_address_that_cannot_be_used_is_a_configuration_error(
    state: HealthState, address: str
) -> None:
    with pytest.raises(ConfigurationError, match=address):
        a_server(state, address).start()
