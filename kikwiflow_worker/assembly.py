"""Puts what the operations work with together: the ports of one database, and how this process uses them."""

from uuid import uuid4

from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.tracing.protocol import NO_TRACING, Tracing


def services_over(
    store: MongoStore,
    *,
    retry_defaults: RetryDefaults | None = None,
    tracing: Tracing = NO_TRACING,
) -> Services:
    """Return the services over a database; they close nothing of it."""
    return Services(
        runtime=store.runtime,
        definitions=store.definitions,
        reads=store.reads,
        searches=store.searches,
        rules=store.rules,
        external_work=store.external_work,
        bulk=store.bulk,
        new_id=lambda: str(uuid4()),
        retry_defaults=retry_defaults or RetryDefaults(),
        event_level=store.options.outbox.level,
        tracing=tracing,
    )
