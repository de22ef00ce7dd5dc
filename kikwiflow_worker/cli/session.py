"""Runs the calls of a command with a client of the database that its settings name."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click

from kikwiflow_worker.cli.connection import database_address, store_options
from kikwiflow_worker.cli.options import invocation
from kikwiflow_worker.client import Kikwiflow
from kikwiflow_worker.clock import SystemClock
from kikwiflow_worker.engine.retries import RetryDefaults
from kikwiflow_worker.settings import Settings
from kikwiflow_worker.store.mongo.store import MongoStore
from kikwiflow_worker.telemetry import LogLevel, configure_logging

T = TypeVar("T")


def with_client(context: click.Context, action: Callable[[Kikwiflow], Awaitable[T]]) -> T:
    """Return what ``action`` returns for a connected client, which is closed afterwards.

    Raises:
        ConfigurationError: The settings are not valid, or name no database that can be used.
        StoreUnavailableError: The database does not answer within a few seconds.
        StoreRefusedError: It refuses the credentials, or a certificate is not accepted.
    """
    settings = invocation(context).settings()
    log_to_stderr(settings)
    with database_address(settings) as address:
        return asyncio.run(_call(address.uri, address.database, settings, action))


def with_store(context: click.Context, action: Callable[[MongoStore], Awaitable[T]]) -> T:
    """Return what ``action`` returns for a store that is not prepared, so that nothing is written; it is closed afterwards.

    Raises:
        ConfigurationError: The settings are not valid, or name no database that can be used.
        StoreUnavailableError: The database does not answer within a few seconds.
    """
    settings = invocation(context).settings()
    log_to_stderr(settings)

    async def act(uri: str, database: str) -> T:
        opened = MongoStore.open(
            uri, database, clock=SystemClock(), options=store_options(settings)
        )
        try:
            return await action(opened)
        finally:
            await opened.close()

    with database_address(settings) as address:
        return asyncio.run(act(address.uri, address.database))


def log_to_stderr(settings: Settings) -> None:
    """Keep what is logged out of the output, and silent unless it is a warning."""
    configure_logging(LogLevel.WARNING, settings.log_format, sys.stderr)


async def _call(
    uri: str, database: str, settings: Settings, action: Callable[[Kikwiflow], Awaitable[T]]
) -> T:
    defaults = RetryDefaults(
        max_retries=settings.default_max_retries, interval=settings.default_retry_interval
    )
    async with Kikwiflow.connect(
        uri,
        database=database,
        options=store_options(settings),
        retry_defaults=defaults,
        traces=settings.traces,
    ) as client:
        return await action(client)
