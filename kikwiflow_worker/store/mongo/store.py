"""Puts the adapter together: one object per database that offers every port."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pymongo import AsyncMongoClient
from pymongo.errors import PyMongoError

from kikwiflow_worker.clock import Clock
from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.store.answers import AnswerStore
from kikwiflow_worker.store.bulk import BulkStore
from kikwiflow_worker.store.external_work import ExternalWork
from kikwiflow_worker.store.keys import KeyRing
from kikwiflow_worker.store.mongo.access import mongo_access
from kikwiflow_worker.store.mongo.answers import Answers
from kikwiflow_worker.store.mongo.arrivals import Arrivals
from kikwiflow_worker.store.mongo.bulk import MongoBulk
from kikwiflow_worker.store.mongo.cancellation import Cancellation
from kikwiflow_worker.store.mongo.claims import Claims
from kikwiflow_worker.store.mongo.collections import Collections, ensure_schema
from kikwiflow_worker.store.mongo.commits import CommitParts, Commits
from kikwiflow_worker.store.mongo.definitions import Definitions
from kikwiflow_worker.store.mongo.driver import (
    CODEC_OPTIONS,
    Client,
    Database,
    client_options,
    open_database,
    settled,
)
from kikwiflow_worker.store.mongo.errors import translated, translated_opening
from kikwiflow_worker.store.mongo.external_work import MongoExternalWork
from kikwiflow_worker.store.mongo.fetch_records import FetchRecords
from kikwiflow_worker.store.mongo.follow_ups import FollowUps
from kikwiflow_worker.store.mongo.groups import GroupCommits
from kikwiflow_worker.store.mongo.guards import Guards
from kikwiflow_worker.store.mongo.handing_on import HandingOn
from kikwiflow_worker.store.mongo.inspection import Inspection, inspect
from kikwiflow_worker.store.mongo.instances import InstanceWrites
from kikwiflow_worker.store.mongo.key_checks import check_keys
from kikwiflow_worker.store.mongo.outbox import Outbox, OutboxOptions
from kikwiflow_worker.store.mongo.queries import Queries
from kikwiflow_worker.store.mongo.reachability import Reachability, find_unreachable
from kikwiflow_worker.store.mongo.reencrypting import Reencrypted, reencrypt
from kikwiflow_worker.store.mongo.relay import MongoRelay
from kikwiflow_worker.store.mongo.relay_care import MongoRelayCare
from kikwiflow_worker.store.mongo.repairs import Repairs
from kikwiflow_worker.store.mongo.rules import Rules
from kikwiflow_worker.store.mongo.runtime import CommitPaths, Runtime
from kikwiflow_worker.store.mongo.sealing import Sealing
from kikwiflow_worker.store.mongo.searches import Searches
from kikwiflow_worker.store.mongo.server_time import ServerTime
from kikwiflow_worker.store.mongo.standalone import StandaloneCommits
from kikwiflow_worker.store.mongo.transactions import TransactionObserver, Transactions
from kikwiflow_worker.store.mongo.upgrades import Upgraded, upgrade_schema
from kikwiflow_worker.store.mongo.wake_ups import MongoWakeUps
from kikwiflow_worker.store.mongo.writes import Writes
from kikwiflow_worker.store.protocol import (
    DefinitionStore,
    ReadStore,
    RuntimeStore,
    TaskQueue,
    WakeUps,
)
from kikwiflow_worker.store.relay import RelaySetup, RelayStore
from kikwiflow_worker.store.rules import RuleStore
from kikwiflow_worker.store.search import SearchStore

OLDEST_SERVER = (5, 0)
"""The first MongoDB whose ``$expr`` uses an index, which a claim needs."""


class SilentObserver:
    """An observer that keeps nothing."""

    def transaction_attempted(self) -> None:
        """Ignore it."""

    def transaction_conflicted(self) -> None:
        """Ignore it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a store behaves.

    Attributes:
        retention: How long ended instances, completions and start keys are kept.
        audit_retention: How long is kept who changed what.
        outbox: Which events are stored for programs that follow along.
        keys: What values of variables are encrypted with; None stores them plain.
        allow_standalone: Work on a server without transactions: a crash can then repeat a step, but not lose one.
    """

    retention: timedelta = timedelta(days=30)
    audit_retention: timedelta = timedelta(days=365)
    allow_standalone: bool = False
    outbox: OutboxOptions = field(default_factory=OutboxOptions)
    keys: KeyRing | None = None


class MongoStore:
    """One database, as all ports: ``queue``, ``wake_ups``, ``runtime``, ``definitions`` and ``reads``."""

    def __init__(
        self,
        client: Client,
        database: str,
        *,
        clock: Clock,
        options: StoreOptions,
        observer: TransactionObserver,
        owns_client: bool,
    ) -> None:
        self._client = client
        self._owns_client = owns_client
        self._clock = clock
        self.options = options
        self.server_time = ServerTime(clock)
        self._collections = Collections.of(
            self._open_database(client, database),
            Sealing(options.keys) if options.keys else None,
        )
        self._transactions = Transactions(
            client, self._collections.meta, clock, random.Random(), observer
        )
        collections, time = self._collections, self.server_time
        definitions = Definitions(collections, self._transactions, time)
        outbox = Outbox(collections, options.outbox, definitions.find, clock)
        instances = InstanceWrites(collections, outbox, options.retention)
        writes = Writes(collections, outbox, instances, options.retention)
        arrivals = self._new_arrivals(collections)
        guards = Guards(collections, options.retention)
        handing_on = HandingOn(collections, time, clock)
        follow_ups = FollowUps(collections, arrivals, handing_on, time)
        parts = CommitParts(
            guards=guards,
            writes=writes,
            transactions=self._transactions,
            server_time=time,
            handing_on=handing_on,
            follow_ups=follow_ups,
        )
        alone = Commits(parts)
        self.wake_ups: WakeUps = MongoWakeUps(collections, clock, random.Random())
        claims = self._new_claims(client, collections, arrivals, time, clock)
        self.queue: TaskQueue = claims
        self.external_work: ExternalWork = MongoExternalWork(
            collections,
            claims,
            FetchRecords(collections, time, clock),
            clock,
            random.Random(),
        )
        self.bulk: BulkStore = MongoBulk(collections, self._transactions)
        self.definitions: DefinitionStore = definitions
        self.rules: RuleStore = Rules(collections, definitions)
        self.relay: RelayStore = MongoRelay(collections, outbox, self._transactions, time)
        self.relay_care: RelaySetup = MongoRelayCare(collections, outbox, self._transactions, time)
        self.reads: ReadStore = Queries(collections, time)
        self.searches: SearchStore = Searches(collections, time)
        self.access = mongo_access(collections, audit_retention=options.audit_retention)
        self.answers: AnswerStore = Answers(collections, time)
        self.runtime: RuntimeStore = Runtime(
            collections,
            CommitPaths(
                alone=alone,
                groups=GroupCommits(alone, parts, instances),
                standalone=StandaloneCommits(parts, collections),
            ),
            Cancellation(collections, instances, self._transactions, time),
            Repairs(collections, outbox, self._transactions, time),
            self._transactions,
            time,
        )

    def _open_database(self, client: Client, name: str) -> Database:
        return open_database(client, name)

    def _new_arrivals(self, collections: Collections) -> Arrivals:
        return Arrivals(collections)

    def _new_claims(self, *parts: Any) -> Claims:
        return Claims(*parts)

    @classmethod
    def open(
        cls,
        uri: str,
        database: str,
        *,
        clock: Clock,
        options: StoreOptions | None = None,
        observer: TransactionObserver | None = None,
    ) -> "MongoStore":
        """Return a store over a client of its own; nothing is sent yet.

        Raises:
            ConfigurationError: The URI cannot be read.
        """
        with translated_opening():
            client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(uri, **client_options(uri))
        return cls(
            client,
            database,
            clock=clock,
            options=options or StoreOptions(),
            observer=observer or SilentObserver(),
            owns_client=True,
        )

    @classmethod
    def over(
        cls, client: Client, database: str, *, clock: Clock, options: StoreOptions | None = None
    ) -> "MongoStore":
        """Return a store over an application's own client: PyMongo's asynchronous one or Motor's. It stays open."""
        return cls(
            client,
            database,
            clock=clock,
            options=options or StoreOptions(),
            observer=SilentObserver(),
            owns_client=False,
        )

    async def prepare(self) -> None:
        """Check the server, learn its time, and create what is missing. Call once, before anything else.

        Raises:
            StoreUnavailableError: The server does not answer.
            StoreRefusedError: It refuses the credentials, a role is missing, or a certificate is not accepted.
            ConfigurationError: It is too old, or has no transactions.
            SchemaMismatchError: A newer release wrote the database.
        """
        hello = await self.ping()
        await self._check_server(hello)
        await ensure_schema(self._collections)
        await check_keys(self._collections)
        await self.relay_care.find_sink()

    async def inspect(self, *, sample: int) -> Inspection:
        """Look at what is stored, at most ``sample`` documents of each collection, and change nothing.

        Raises:
            StoreUnavailableError: The server does not answer.
        """
        await self.ping()
        return await inspect(self._collections, sample=sample)

    async def find_unreachable(self, *, grace: timedelta) -> Reachability:
        """Look for rows that nobody can reach, and for tokens that are lost; change nothing.

        Args:
            grace: How long what looks wrong must stay so; a few seconds while workers run.

        Raises:
            StoreUnavailableError: The server does not answer.
        """
        await self.ping()
        return await find_unreachable(self._collections, self._clock, self.server_time, grace=grace)

    async def upgrade(self) -> Upgraded:
        """Bring the documents and indexes to what this release stores; instead of ``prepare``.

        Raises:
            StoreUnavailableError: The server does not answer.
            StoreRefusedError: It refuses the credentials, a role is missing, or a certificate is not accepted.
            ConfigurationError: It is too old, or has no transactions.
            SchemaMismatchError: A newer release wrote the database.
        """
        hello = await self.ping()
        await self._check_server(hello)
        return await upgrade_schema(self._collections)

    async def reencrypt(
        self, *, batch: int, progressed: Callable[[Reencrypted], None]
    ) -> Reencrypted:
        """Bring every stored value to the present key of ``options.keys``; workers may run meanwhile.

        Args:
            batch: Documents that are read at a time.
            progressed: Is told after each batch what was done so far.

        Raises:
            ConfigurationError: There are no keys, or one of the database is missing.
            StoreUnavailableError: The server does not answer; the next run goes on where this one was.
        """
        await self.prepare()
        return await reencrypt(self._collections, batch=batch, progressed=progressed)

    async def ping(self) -> Mapping[str, Any]:
        """Ask the primary who it is, and learn its time.

        Raises:
            StoreUnavailableError: It does not answer.
        """
        with translated("reaching the database"):
            hello: Mapping[str, Any] = await settled(
                self._client.admin.command("hello", codec_options=CODEC_OPTIONS)
            )
        self.server_time.learn(hello["localTime"])
        return hello

    async def transaction_lifetime_s(self) -> int | None:
        """Return after how many seconds the server aborts an open transaction; None if it does not say so to us."""
        command = {"getParameter": 1, "transactionLifetimeLimitSeconds": 1}
        try:
            answer = await settled(self._client.admin.command(command))
        except PyMongoError:
            return None
        return int(answer["transactionLifetimeLimitSeconds"])

    def skew_s(self) -> float:
        """Return how many seconds the host's clock is ahead of the database's."""
        return self.server_time.skew_s()

    async def _check_server(self, hello: Mapping[str, Any]) -> None:
        with translated("asking the server for its version"):
            build = await settled(self._client.admin.command("buildInfo"))
        version = tuple(build["versionArray"][:2])
        if version < OLDEST_SERVER:
            raise ConfigurationError(f"MongoDB {build['version']} is too old; use 5.0 or newer")
        if "setName" in hello or hello.get("msg") == "isdbgrid":
            return
        if not self.options.allow_standalone:
            raise ConfigurationError(
                "this MongoDB is a standalone server, which has no transactions; start it as a replica set "
                "(one node is enough: mongod --replSet NAME, then rs.initiate()), or give --allow-standalone and "
                "accept that a crash can repeat a step"
            )
        self._transactions.enabled = False

    async def close(self) -> None:
        """Close the client if it is our own."""
        if self._owns_client:
            await settled(self._client.close())
