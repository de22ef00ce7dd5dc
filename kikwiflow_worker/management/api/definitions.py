"""Routes of process definitions."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from kikwiflow_worker.management.api.shapes import Shape
from kikwiflow_worker.management.backend import Viewer

router = APIRouter(prefix="/process-definitions", tags=["process definitions"])


class DefinitionRow(Shape):
    """A row of the list of definitions."""

    id: str
    key: str
    version: int
    name: str | None
    deployed_at: datetime
    is_suspended: bool


@router.get("", operation_id="listDefinitions")
async def list_definitions(
    caller: Viewer, key: Annotated[str | None, Query(min_length=1)] = None
) -> list[DefinitionRow]:
    """List the latest version of every definition, or all versions of one, newest first."""
    found = await caller.services.reads.list_definitions(key=key)
    return [DefinitionRow.model_validate(row) for row in found]
