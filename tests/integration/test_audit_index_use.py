"""What the server examines to list the audit: a page, however many entries there are and however few of them fit."""

from datetime import timedelta

from pymongo.database import Database

from kikwiflow_worker.store.access import AuditEntry, AuditQuery
from kikwiflow_worker.store.mongo.access import encode_audit
from tests.support.management import Managed, managed
from tests.support.profiler import profiled
from tests.support.stores import LONG_AGO, Json

__all__ = ["managed"]

MANY = 4_000
LIMIT = 20


def put_entries(data: Database[Json]) -> None:
    data.audit_log.insert_many(
        [
            encode_audit(
                AuditEntry(
                    id=f"entry-{number:05}",
                    at=LONG_AGO + timedelta(seconds=number // 3),
                    actor=f"actor-{number % 4}",
                    tenant_id="shop" if number % 2 else "bank",
                    operation="cancelInstance" if number % 1000 else "deployDefinition",
                    request_id="request",
                    subjects={"instance_id": f"instance-{number % 500}", "again": "x"},
                    result="DONE",
                )
            )
            for number in range(MANY)
        ]
    )


QUERIES: tuple[tuple[dict[str, str], int], ...] = (
    ({}, MANY),
    ({"tenant_id": "shop"}, MANY // 2),
    ({"actor": "actor-1"}, MANY // 4),
    ({"subject": "instance-7"}, MANY // 500),
    ({"operation": "deployDefinition"}, 4),
    ({"actor": "actor-1", "tenant_id": "shop"}, MANY // 4),
    ({"actor": "actor-1", "tenant_id": "bank"}, 0),
    ({"actor": "actor-0", "operation": "deployDefinition"}, 4),
)


async def test_a_page_of_the_audit_examines_a_bounded_part_of_it(managed: Managed) -> None:
    put_entries(managed.data)
    audit = managed.store.access.audit

    for query, found in QUERIES:
        with profiled(managed.data) as commands:
            page = await audit.list(AuditQuery(**query), limit=LIMIT)

        own = [each for each in commands if each["ns"].endswith(".audit_log")]
        most = LIMIT + 1 if len(query) <= 1 else 50 * LIMIT + 2
        assert own
        assert sum(each["docsExamined"] for each in own) <= most, query
        assert len(page.items) <= LIMIT
        seen = [entry.id for entry in page.items]
        while page.next_cursor and len(seen) < 100:
            page = await audit.list(AuditQuery(**query), limit=100, cursor=page.next_cursor)
            seen += [entry.id for entry in page.items]
        assert len(set(seen)) == len(seen)
        assert len(seen) >= min(found, 100), query
