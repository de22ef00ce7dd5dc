"""Whether the database answers: one place that says so, once per change."""

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import KikwiflowError, StoreRefusedError
from kikwiflow_worker.telemetry import Event, Metrics, emit
from kikwiflow_worker.worker.health import HealthState


class StoreWatch:
    """Tells health, metrics and log when the database goes away and comes back.

    A refusal is told once more than that: somebody must put it right, also where it shows only after an outage.
    """

    def __init__(self, health: HealthState, metrics: Metrics, clock: Clock) -> None:
        self._health = health
        self._metrics = metrics
        self._clock = clock
        self.is_reachable = False
        self._has_heard = False
        self._has_told_refusal = False
        self._answered_at = clock.monotonic()

    @property
    def silence_s(self) -> float:
        """How many seconds ago the database answered last, as far as anybody has said so here."""
        return self._clock.monotonic() - self._answered_at

    def heard(self, error: KikwiflowError | None) -> None:
        """Note that the database answered, or failed with ``error``."""
        if error is None:
            self._answered_at = self._clock.monotonic()
        if not self._has_heard or self.is_reachable != (error is None):
            self._change(error)
        elif isinstance(error, StoreRefusedError) and not self._has_told_refusal:
            self._tell(error)

    def _change(self, error: KikwiflowError | None) -> None:
        self.is_reachable = error is None
        self._health.set_store_reachable(is_reachable=self.is_reachable)
        self._has_told_refusal = False
        if error is not None:
            self._metrics.store_outages.inc()
            self._tell(error)
        elif self._has_heard:
            emit(Event.STORE_RECOVERED)
        self._has_heard = True

    def _tell(self, error: KikwiflowError) -> None:
        self._has_told_refusal = isinstance(error, StoreRefusedError)
        emit(Event.STORE_UNAVAILABLE, error=str(error), hint="work goes on when it answers again")
