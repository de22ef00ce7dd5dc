"""Routes of process definitions."""

import json
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field

from kikwiflow_worker.errors import DefinitionNotFoundError, Problem
from kikwiflow_worker.management.api.paging import paged
from kikwiflow_worker.management.api.refusals import refuses
from kikwiflow_worker.management.api.shapes import (
    LARGEST_INT,
    Body,
    Cursor,
    Id,
    Limit,
    PageOf,
    Shape,
)
from kikwiflow_worker.management.backend import Deployer, Operator, Viewer
from kikwiflow_worker.management.etags import NOT_MODIFIED, unless_known
from kikwiflow_worker.management.problems import Code, UnsupportedMediaTypeError
from kikwiflow_worker.model.definition import DefinitionFile, ProcessDefinition
from kikwiflow_worker.model.texts import check_texts
from kikwiflow_worker.operations import instances, migration
from kikwiflow_worker.operations.deployment import CheckedDefinition, check_definition, deploy
from kikwiflow_worker.operations.migration import MigrationVerdict
from kikwiflow_worker.store.protocol import Deployment

router = APIRouter(prefix="/process-definitions", tags=["process definitions"])

MOST_MIGRATED = 1_000

Key = Annotated[str, Path(min_length=1, description="The definition's key.")]
IfNoneMatch = Annotated[
    str | None, Header(description="ETags that the caller knows; 304 if one of them still stands.")
]


class DefinitionRow(Shape):
    """A row of the list of definitions."""

    id: str
    key: str
    version: int
    name: str | None
    deployed_at: datetime
    is_suspended: bool


class DefinitionShape(Shape):
    """One version of a definition; it never changes."""

    id: str
    key: str
    version: int
    name: str | None
    description: str | None
    sla: str | None = None
    default_start_point: str | None
    flow_nodes: dict[str, dict[str, Any]]
    extension_properties: dict[str, str]
    checksum: str

    @classmethod
    def of(cls, definition: ProcessDefinition) -> "DefinitionShape":
        """Return the document of ``definition``."""
        return cls(id=definition.id, version=definition.version, **_content(definition))


class Finding(Shape):
    """Something that the author of a definition should look at."""

    path: str
    message: str
    hint: str
    is_error: bool

    @classmethod
    def of(cls, problem: Problem) -> "Finding":
        """Return the document of ``problem``."""
        return cls.model_validate(problem)


class DeploymentShape(Shape):
    """What a deploy came to; after a dry run there is no id and no version.

    ``created`` says whether a new version was stored, ``isLatest`` whether new instances start with it.
    """

    id: str | None
    key: str
    version: int | None
    name: str | None
    description: str | None
    sla: str | None = None
    default_start_point: str | None
    flow_nodes: dict[str, dict[str, Any]]
    extension_properties: dict[str, str]
    checksum: str
    created: bool
    is_latest: bool
    is_dry_run: bool
    problems: list[Finding]


class Changed(Shape):
    """How many instances were changed."""

    instances: int


class Migrate(Body):
    """Where instances go; unless ``dryRun`` is false they are only looked at."""

    version: int | None = Field(
        None, ge=1, le=LARGEST_INT, description="The latest, if it is not given."
    )
    dry_run: bool = True


class MigrateAll(Migrate):
    """Where all instances of a definition go."""

    limit: int = Field(100, ge=1, le=MOST_MIGRATED, description="Instances of one call.")


class Verdict(Shape):
    """Whether an instance can go on with another version, and what keeps it from it."""

    instance_id: str
    from_version: int
    to_version: int
    problems: list[str]
    migrated: bool

    @classmethod
    def of(cls, verdict: MigrationVerdict) -> "Verdict":
        """Return the document of ``verdict``."""
        return cls.model_validate(verdict)


class Verdicts(Shape):
    """Verdicts of a call; unless ``isComplete``, it ended at its limit and there may be more instances."""

    items: list[Verdict]
    is_complete: bool


_EXAMPLE = {
    "key": "order",
    "name": "Order",
    "defaultStartPoint": "START",
    "flowNodes": {
        "START": {
            "id": "START",
            "type": "DEFAULT_START_EVENT",
            "outgoing": [{"targetNodeId": "APPROVE"}],
        },
        "APPROVE": {
            "id": "APPROVE",
            "type": "EXTERNAL_TASK",
            "outgoing": [{"targetNodeId": "END"}],
        },
        "END": {"id": "END", "type": "DEFAULT_END_EVENT", "outgoing": []},
    },
}
_DEFINITION_FILE = {
    "requestBody": {
        "required": True,
        "description": "The definition file itself.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["key", "flowNodes"],
                    "properties": {
                        "key": {"type": ["string", "number", "boolean"]},
                        "defaultStartPoint": {"type": "string"},
                        "flowNodes": {"type": "object"},
                    },
                },
                "example": _EXAMPLE,
            }
        },
    }
}


@router.post(
    "",
    status_code=201,
    operation_id="deployDefinition",
    openapi_extra=_DEFINITION_FILE,
    responses={
        200: {
            "model": DeploymentShape,
            "description": "Nothing was stored: it was a dry run, or the same content is deployed already.",
        },
        **refuses(Code.INVALID_DEFINITION, Code.UNSUPPORTED_MEDIA_TYPE),
    },
)
async def deploy_definition(
    caller: Deployer,
    request: Request,
    response: Response,
    *,
    dry_run: Annotated[
        bool, Query(alias="dryRun", description="Only check it, and store nothing.")
    ] = False,
    activate: Annotated[
        bool, Query(description="Make content that an older version has the latest again.")
    ] = False,
) -> DeploymentShape:
    """Deploy a definition as the next version of its key; the same content again stores nothing."""
    media_type = request.headers.get("content-type", "application/json").partition(";")[0]
    if media_type.strip().lower() != "application/json":
        raise UnsupportedMediaTypeError("a definition is deployed as application/json")
    checked = check_definition(await request.body(), name="definition")
    if dry_run:
        response.status_code = 200
        return _deployment(checked, None)
    done = await deploy(caller.services, checked, activate=activate)
    caller.concerns(definition_id=done.definition.id)
    response.status_code = 201 if done.created else 200
    return _deployment(checked, done)


@router.get(
    "",
    operation_id="listDefinitions",
    response_model=PageOf[DefinitionRow],
    responses=NOT_MODIFIED,
)
async def list_definitions(
    caller: Viewer,
    request: Request,
    *,
    key: Annotated[str | None, Query(min_length=1)] = None,
    limit: Limit = 20,
    cursor: Cursor = None,
    if_none_match: IfNoneMatch = None,  # noqa: ARG001 - read from the request
) -> Response:
    """List the latest version of every definition by key, or all versions of one, newest first."""
    found = await caller.services.reads.list_definitions(key=key)
    page = paged(found, limit=limit, cursor=cursor, key=lambda row: (row.key, -row.version))
    items = [DefinitionRow.model_validate(row) for row in page.items]
    return unless_known(request, PageOf[DefinitionRow](items=items, next_cursor=page.next_cursor))


@router.get(
    "/one-by-key/{key:path}",
    operation_id="getDefinitionByKey",
    response_model=DefinitionShape,
    responses={**NOT_MODIFIED, **refuses(Code.DEFINITION_NOT_FOUND)},
)
async def get_definition_by_key(
    caller: Viewer,
    request: Request,
    key: Key,
    *,
    version: Annotated[int | None, Query(ge=1, le=LARGEST_INT)] = None,
    if_none_match: IfNoneMatch = None,  # noqa: ARG001 - read from the request
) -> Response:
    """Return the latest version of a definition, or the one given."""
    found = await instances.get_definition(caller.services, key, version)
    return unless_known(request, DefinitionShape.of(found))


@router.post(
    "/by-key/{key:path}/suspend",
    operation_id="suspendDefinition",
    responses=refuses(Code.DEFINITION_NOT_FOUND),
)
async def suspend(caller: Operator, key: Key) -> Changed:
    """Let no instance of a definition start, and those that run rest; repeating it finishes one that was interrupted."""
    changed = await instances.change_definition(caller.services, key, suspended=True)
    return Changed(instances=changed)


@router.post(
    "/by-key/{key:path}/resume",
    operation_id="resumeDefinition",
    responses=refuses(Code.DEFINITION_NOT_FOUND),
)
async def resume(caller: Operator, key: Key) -> Changed:
    """Let a suspended definition and its instances go on."""
    changed = await instances.change_definition(caller.services, key, suspended=False)
    return Changed(instances=changed)


@router.post(
    "/by-key/{key:path}/migrate",
    operation_id="migrateInstancesOfDefinition",
    responses=refuses(Code.DEFINITION_NOT_FOUND),
)
async def migrate_all(caller: Operator, key: Key, body: MigrateAll) -> Verdicts:
    """Move running instances of a definition to one version, newest first, or say which of them could be.

    Those that run with it already are passed over, so that repeating the call goes on with the rest.
    """
    verdicts: list[Verdict] = []
    moving = migration.migrate_all(caller.services, key, version=body.version, dry_run=body.dry_run)
    async for verdict in moving:
        verdicts.append(Verdict.of(verdict))
        if len(verdicts) == body.limit:
            return Verdicts(items=verdicts, is_complete=False)
    return Verdicts(items=verdicts, is_complete=True)


@router.get(
    "/{definition_id}",
    operation_id="getDefinition",
    response_model=DefinitionShape,
    responses={**NOT_MODIFIED, **refuses(Code.DEFINITION_NOT_FOUND)},
)
async def get_definition(
    caller: Viewer,
    request: Request,
    definition_id: Id,
    *,
    if_none_match: IfNoneMatch = None,  # noqa: ARG001 - read from the request
) -> Response:
    """Return one version of a definition by its id."""
    return unless_known(request, DefinitionShape.of(await find_version(caller, definition_id)))


@router.delete("/cache", status_code=204, operation_id="clearDefinitionCache", deprecated=True)
async def clear_cache(caller: Deployer) -> Response:  # noqa: ARG001 - for its role
    """Do nothing: a version never changes, so there is nothing to clear. Kept for programs made for Kikwiflow."""
    return Response(status_code=204)


async def find_version(caller: Viewer, definition_id: str) -> ProcessDefinition:
    """Return one version by its id.

    Raises:
        DefinitionNotFoundError: There is none.
    """
    check_texts(definition_id=definition_id)
    found = await caller.services.definitions.find(definition_id)
    if found is None:
        raise DefinitionNotFoundError(
            f"no definition has the id {definition_id}; list what is deployed"
        )
    return found


def _content(file: DefinitionFile) -> dict[str, Any]:
    """Return what a file says, its nodes with every field that the author wrote."""
    return {
        "key": file.key,
        "name": file.name,
        "description": file.description,
        "default_start_point": file.default_start_point,
        "flow_nodes": json.loads(file.source)["flowNodes"],
        "extension_properties": dict(file.extension_properties),
        "checksum": file.checksum,
    }


def _deployment(checked: CheckedDefinition, done: Deployment | None) -> DeploymentShape:
    return DeploymentShape(
        id=done.definition.id if done else None,
        version=done.definition.version if done else None,
        created=done is not None and done.created,
        is_latest=done is not None and done.is_latest,
        is_dry_run=done is None,
        problems=[Finding.of(warning) for warning in checked.warnings],
        **_content(checked.file),
    )
