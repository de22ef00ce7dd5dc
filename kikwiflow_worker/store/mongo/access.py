"""Who may use the HTTP API: tokens, sessions and the audit; see ``kikwiflow_worker.store.access``."""

from datetime import datetime, timedelta

from pymongo.errors import DuplicateKeyError

from kikwiflow_worker.model.identity import Identity, Role
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.store.access import (
    Access,
    ApiToken,
    AuditEntry,
    AuditQuery,
    LoginSession,
)
from kikwiflow_worker.store.mongo.collections import Collections
from kikwiflow_worker.store.mongo.driver import Collection, Document, settled
from kikwiflow_worker.store.mongo.errors import translated
from kikwiflow_worker.store.mongo.keyset import Order, decode_cursor, encode_cursor
from kikwiflow_worker.store.mongo.ways import Wanted, Way, choose, given
from kikwiflow_worker.store.mongo.windows import read_page
from kikwiflow_worker.store.search import EXAMINED_PER_ROW
from kikwiflow_worker.store.views import Page

TOUCH_EVERY = timedelta(minutes=10)
"""A token's last use is noted so often at most: it is for people who look for tokens that nobody needs."""

KEPT_AFTER_EXPIRY = timedelta(days=30)
MAX_PAGE = 100
_MOST_TOKENS = 1000
_MAX_TIME_MS = 5_000
_AUDIT_ORDER = Order("at", newest_first=True)
_AUDIT_WAYS = (
    Way("subject_newest", ("subjectIds",)),
    Way("actor_newest", ("actor",)),
    Way("operation_newest", ("operation",)),
    Way("tenant_newest", ("tenantId",)),
    Way("newest"),
)
"""The narrowest first: few entries are about one thing, many are of one tenant."""


def mongo_access(collections: Collections, *, audit_retention: timedelta) -> Access:
    """Return the three ports over one database."""
    return Access(
        tokens=MongoTokens(collections.api_tokens),
        sessions=MongoSessions(collections.web_sessions),
        audit=MongoAudit(collections.audit_log, audit_retention),
    )


class MongoTokens:
    """The tokens of one database."""

    def __init__(self, tokens: Collection) -> None:
        self._tokens = tokens

    async def insert(self, token: ApiToken, secret_hash: str) -> bool:
        """Store a new token; see ``TokenStore.insert``."""
        document = encode_token(token) | {"secretHash": secret_hash, "current": token.name}
        with translated(f"storing token {token.name!r}"):
            try:
                await settled(self._tokens.insert_one(document))
            except DuplicateKeyError:
                return False
        return True

    async def find_by_secret(self, secret_hash: str, *, now: datetime) -> ApiToken | None:
        """Return the token with this secret; see ``TokenStore.find_by_secret``."""
        found = await self._find({"secretHash": secret_hash})
        if found is None:
            found = await self._find({"previousHash": secret_hash, "previousUntil": {"$gt": now}})
        return found

    async def find(self, token_id: str) -> ApiToken | None:
        """Return one token by its id."""
        check_texts(id=token_id)
        return await self._find({"_id": token_id})

    async def find_by_name(self, name: str) -> ApiToken | None:
        """Return the token that is not revoked and has this name."""
        check_texts(name=name)
        return await self._find({"current": name})

    async def list(self) -> tuple[ApiToken, ...]:
        """Return all tokens, by name."""
        with translated("listing tokens"):
            cursor = self._tokens.find({}, max_time_ms=_MAX_TIME_MS).sort([("name", 1), ("_id", 1)])
            rows = await cursor.limit(_MOST_TOKENS).to_list(_MOST_TOKENS)
        return tuple(decode_token(row) for row in rows)

    async def rotate(
        self,
        token_id: str,
        secret_hash: str,
        *,
        at: datetime,
        expires_at: datetime,
        previous_until: datetime | None,
    ) -> bool:
        """Replace a secret; see ``TokenStore.rotate``."""
        given = {
            "secretHash": secret_hash,
            "rotatedAt": at,
            "expiresAt": expires_at,
            "removeAt": expires_at + KEPT_AFTER_EXPIRY,
        }
        update: list[Document] = [{"$set": given}, {"$unset": ["previousHash", "previousUntil"]}]
        if previous_until is not None:
            # The stages see the document as it was: the hash that is replaced is the one kept.
            kept = {"previousHash": "$secretHash", "previousUntil": previous_until}
            update = [{"$set": kept}, {"$set": given}]
        return await self._change(token_id, update, "rotating")

    async def revoke(self, token_id: str, *, at: datetime) -> bool:
        """End a token for good."""
        update = {
            "$set": {"revokedAt": at},
            "$unset": {"current": "", "previousHash": "", "previousUntil": ""},
        }
        return await self._change(token_id, update, "revoking")

    async def touch(self, token_id: str, *, at: datetime) -> None:
        """Note that a token was used, unless that was noted lately."""
        lately = {"$not": {"$gt": at - TOUCH_EVERY}}
        with translated(f"noting the use of token {token_id}"):
            await settled(
                self._tokens.update_one(
                    {"_id": token_id, "lastUsedAt": lately}, {"$set": {"lastUsedAt": at}}
                )
            )

    async def _change(self, token_id: str, update: object, doing: str) -> bool:
        check_texts(id=token_id)
        with translated(f"{doing} token {token_id}"):
            result = await settled(
                self._tokens.update_one({"_id": token_id, "revokedAt": {"$exists": False}}, update)
            )
        return bool(result.matched_count)

    async def _find(self, found: Document) -> ApiToken | None:
        with translated("looking up a token"):
            document = await settled(self._tokens.find_one(found, max_time_ms=_MAX_TIME_MS))
        return decode_token(document) if document else None


class MongoSessions:
    """The dashboard's sessions of one database."""

    def __init__(self, sessions: Collection) -> None:
        self._sessions = sessions

    async def insert(self, cookie_hash: str, session: LoginSession) -> None:
        """Store a session."""
        with translated("storing a session"):
            await settled(
                self._sessions.insert_one({"_id": cookie_hash, **encode_session(session)})
            )

    async def find(self, cookie_hash: str) -> LoginSession | None:
        """Return a session, over or not."""
        with translated("looking up a session"):
            found = await settled(
                self._sessions.find_one({"_id": cookie_hash}, max_time_ms=_MAX_TIME_MS)
            )
        return decode_session(found) if found else None

    async def replace(
        self, cookie_hash: str, new_hash: str, session: LoginSession, *, until: datetime
    ) -> None:
        """Store a session under a new cookie; see ``SessionStore.replace``."""
        # Many requests at once may each issue a cookie: each is good, and the browser keeps the last one it got.
        await self.insert(new_hash, session)
        with translated("replacing a session's cookie"):
            await settled(
                self._sessions.update_one(
                    {"_id": cookie_hash},
                    {"$min": {"expiresAt": until}, "$max": {"issuedAt": session.issued_at}},
                )
            )

    async def remove(self, cookie_hash: str) -> None:
        """End a session, with all its cookies."""
        with translated("ending a session"):
            found = await settled(self._sessions.find_one({"_id": cookie_hash}, {"csrfToken": 1}))
            if found:
                await settled(self._sessions.delete_many({"csrfToken": found["csrfToken"]}))


class MongoAudit:
    """The audit of one database."""

    def __init__(self, audit: Collection, retention: timedelta) -> None:
        self._audit = audit
        self._retention = retention

    async def begin(self, entry: AuditEntry) -> None:
        """Note that a change is about to be made."""
        document = encode_audit(entry) | {"expiresAt": entry.at + self._retention}
        with translated("writing the audit"):
            await settled(self._audit.insert_one(document))

    async def end(self, entry: AuditEntry) -> None:
        """Note what became of a change."""
        document = encode_audit(entry)
        names = ("result", "subjects", "subjectIds")
        changed = {name: document[name] for name in names if name in document}
        with translated("writing the audit"):
            await settled(self._audit.update_one({"_id": entry.id}, {"$set": changed}))

    async def withdraw(self, entry: AuditEntry) -> None:
        """Remove the entry of a call that found nothing to change."""
        with translated("writing the audit"):
            await settled(self._audit.delete_one({"_id": entry.id}))

    async def list(
        self, query: AuditQuery, *, limit: int = 50, cursor: str | None = None
    ) -> Page[AuditEntry]:
        """Return entries, newest first; a page may end early, with a cursor that goes on."""
        wanted = Wanted(
            given(
                actor=query.actor,
                operation=query.operation,
                subjectIds=query.subject,
                tenantId=query.tenant_id,
            )
        )
        look = choose(_AUDIT_WAYS, wanted).look(self._audit, _AUDIT_ORDER, wanted)
        limit = max(1, min(limit, MAX_PAGE))
        with translated("listing the audit"):
            window = await read_page(
                (look,),
                after=decode_cursor(cursor) if cursor else None,
                limit=limit,
                budget=limit * EXAMINED_PER_ROW,
            )
        next_cursor = encode_cursor(window.reached) if window.reached else None
        return Page(tuple(decode_audit(row) for row in window.rows), next_cursor)


def encode_token(token: ApiToken) -> Document:
    """Return the document of a token, without what only its store knows."""
    return _without_nothing(
        {
            "_id": token.id,
            "name": token.name,
            "roles": sorted(role.value for role in token.roles),
            "tenantId": token.tenant_id,
            "createdAt": token.created_at,
            "expiresAt": token.expires_at,
            "removeAt": token.expires_at + KEPT_AFTER_EXPIRY,
            "rotatedAt": token.rotated_at,
            "previousUntil": token.previous_until,
            "lastUsedAt": token.last_used_at,
            "revokedAt": token.revoked_at,
        }
    )


def decode_token(row: Document) -> ApiToken:
    """Return the token of a document."""
    return ApiToken(
        id=row["_id"],
        name=row["name"],
        roles=_roles(row),
        tenant_id=row.get("tenantId"),
        created_at=row["createdAt"],
        expires_at=row["expiresAt"],
        rotated_at=row.get("rotatedAt"),
        previous_until=row.get("previousUntil"),
        last_used_at=row.get("lastUsedAt"),
        revoked_at=row.get("revokedAt"),
    )


def encode_session(session: LoginSession) -> Document:
    """Return the document of a session, without its id."""
    identity = session.identity
    return _without_nothing(
        {
            "actor": identity.actor,
            "roles": sorted(role.value for role in identity.roles),
            "tenantId": identity.tenant_id,
            "csrfToken": session.csrf_token,
            "tokenId": session.token_id,
            "issuedAt": session.issued_at,
            "expiresAt": session.expires_at,
            "endsAt": session.ends_at,
        }
    )


def decode_session(row: Document) -> LoginSession:
    """Return the session of a document."""
    return LoginSession(
        identity=Identity(actor=row["actor"], roles=_roles(row), tenant_id=row.get("tenantId")),
        csrf_token=row["csrfToken"],
        token_id=row.get("tokenId"),
        issued_at=row["issuedAt"],
        expires_at=row["expiresAt"],
        ends_at=row["endsAt"],
    )


def encode_audit(entry: AuditEntry) -> Document:
    """Return the document of an entry, without its end."""
    return _without_nothing(
        {
            "_id": entry.id,
            "at": entry.at,
            "actor": entry.actor,
            "tenantId": entry.tenant_id,
            "operation": entry.operation,
            "requestId": entry.request_id,
            "subjects": [{"name": name, "id": each} for name, each in entry.subjects.items()],
            "subjectIds": sorted(set(entry.subjects.values())),
            "result": entry.result,
        }
    )


def decode_audit(row: Document) -> AuditEntry:
    """Return the entry of a document."""
    return AuditEntry(
        id=row["_id"],
        at=row["at"],
        actor=row["actor"],
        tenant_id=row.get("tenantId"),
        operation=row["operation"],
        request_id=row["requestId"],
        subjects={each["name"]: each["id"] for each in row.get("subjects", [])},
        result=row.get("result"),
    )


def _roles(row: Document) -> frozenset[Role]:
    """Return the roles that this release knows: one that a newer release added grants nothing here."""
    known = {role.value: role for role in Role}
    return frozenset(known[name] for name in row["roles"] if name in known)


def _without_nothing(document: Document) -> Document:
    return {name: value for name, value in document.items() if value is not None}
