"""Documents of every schema version that was ever released stay readable, and mean what they meant."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from bson import json_util

from kikwiflow_worker.model.bulk import BulkAction, BulkStatus
from kikwiflow_worker.model.external_work import ReportKind, ReportOutcome
from kikwiflow_worker.model.messages import MessageStatus
from kikwiflow_worker.model.runtime import (
    ExternalTaskStatus,
    ExternalTaskType,
    IncidentStatus,
    IncidentType,
    InstanceStatus,
    TaskStatus,
    TaskType,
)
from kikwiflow_worker.store.mongo.collections import SCHEMA_VERSION
from tests.compat.freeze import FOLDER, OPTIONS, paths
from tests.compat.kinds import KINDS
from tests.compat.records import RECORDS

FROZEN = [pytest.param(*each, id=f"{each[1]}/{each[2]}") for each in paths()]
WRITTEN = [each for each in FROZEN if KINDS[str(each.values[1])].encode is not None]


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json_util.loads(path.read_text(), json_options=OPTIONS)
    return document


def frozen_values(field: str, *collections: str) -> set[str]:
    return {
        read(path)[field]
        for path, collection, _ in paths()
        if collection in collections and field in read(path)
    }


@pytest.mark.parametrize(("path", "collection", "name"), FROZEN)
def test_a_frozen_document_is_read_as_the_value_it_was_written_for(
    path: Path, collection: str, name: str
) -> None:
    decoded = KINDS[collection].decode(read(path))

    assert decoded == RECORDS[collection][name]


@pytest.mark.parametrize(("path", "collection", "name"), WRITTEN)
def test_what_is_written_today_is_what_was_frozen(path: Path, collection: str, name: str) -> None:
    """A field that is added or renamed needs a new schema version, or is left out where it has no value."""
    encode = KINDS[collection].encode
    assert encode is not None

    written = encode(RECORDS[collection][name])

    text = json_util.dumps(written, indent=2, json_options=OPTIONS)
    assert json_util.loads(text, json_options=OPTIONS) == read(path)


@pytest.mark.parametrize(
    ("kinds", "field", "collections"),
    [
        (TaskType, "type", ("executable_tasks",)),
        (TaskStatus, "status", ("executable_tasks",)),
        (set(ExternalTaskType) - {ExternalTaskType.TASK}, "type", ("external_tasks",)),
        (ExternalTaskStatus, "status", ("external_tasks",)),
        (InstanceStatus, "status", ("process_instances", "process_history")),
        (IncidentType, "type", ("incidents",)),
        (IncidentStatus, "status", ("incidents",)),
        (MessageStatus, "status", ("messages",)),
        (ReportKind, "kind", ("external_work_reports",)),
        (ReportOutcome, "outcome", ("external_work_reports",)),
        (BulkAction, "action", ("bulk_jobs",)),
        (BulkStatus, "status", ("bulk_jobs",)),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_every_kind_has_a_frozen_document(
    kinds: Iterable[StrEnum], field: str, collections: tuple[str, ...]
) -> None:
    assert frozen_values(field, *collections) == {kind.value for kind in kinds}


def test_no_frozen_document_is_forgotten() -> None:
    assert sorted(FOLDER.rglob("*.json")) == sorted(path for path, *_ in paths())


def test_every_schema_version_has_its_documents() -> None:
    folders = {path.name for path in FOLDER.parent.glob("schema-*")}

    assert folders == {f"schema-{version}" for version in range(1, SCHEMA_VERSION + 1)}
