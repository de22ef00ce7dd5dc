"""The API's description in OpenAPI 3.1: what FastAPI knows, and what holds for every operation.

``docs/reference/openapi.json`` is this document.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from kikwiflow_worker.management.api.refusals import CODES, COMMON, PROBLEM_SCHEMA, refused_with
from kikwiflow_worker.management.idempotency import IDEMPOTENCY_KEY, LONGEST_KEY, REPLAYED
from kikwiflow_worker.management.problems import Code
from kikwiflow_worker.management.request_log import REQUEST_ID

Json = dict[str, Any]

_PARAMETER = re.compile(r"\{\w+\}")
_METHODS = ("get", "put", "post", "delete", "patch")
_DESCRIPTION = """\
Starts, shows and changes everything that runs in one database of kikwiflow-worker.

* Every refusal is a problem document (RFC 9457) with a stable `code`.
* Lists come in pages: give `nextCursor` as `cursor` until it is null. A page may hold fewer rows than its limit.
* A POST may carry an `Idempotency-Key`: a repeat within 24 hours is not carried out again and gets the same answer.
* Unknown fields and query parameters are errors. Query parameters may be written in kebab case, as in Kikwiflow.
* Instants are ISO 8601 with a time zone.
"""

_OF_INSTANCE = {"instance_id": "$response.body#/id"}
_FIRST_ITEM = "$response.body#/items/0/id"

LINKS: Mapping[tuple[str, str], Mapping[str, Mapping[str, str]]] = {
    ("deployDefinition", "201"): {
        "getDefinition": {"definition_id": "$response.body#/id"},
        "getDefinitionByKey": {"key": "$response.body#/key"},
        "suspendDefinition": {"key": "$response.body#/key"},
        "resumeDefinition": {"key": "$response.body#/key"},
        "migrateInstancesOfDefinition": {"key": "$response.body#/key"},
        "getDefinitionStats": {"definition_id": "$response.body#/id"},
    },
    ("listDefinitions", "200"): {
        "getDefinition": {"definition_id": _FIRST_ITEM},
        "getDefinitionStats": {"definition_id": _FIRST_ITEM},
        "getDefinitionByKey": {"key": "$response.body#/items/0/key"},
    },
    ("startInstance", "201"): {
        "getInstance": _OF_INSTANCE,
        "getInstanceSnapshot": _OF_INSTANCE,
        "listEvents": _OF_INSTANCE,
        "listIncidentsOfInstance": _OF_INSTANCE,
        "setVariables": _OF_INSTANCE,
        "unsetVariables": _OF_INSTANCE,
        "suspendInstance": _OF_INSTANCE,
        "resumeInstance": _OF_INSTANCE,
        "migrateInstance": _OF_INSTANCE,
        "cancelInstance": _OF_INSTANCE,
        "deleteInstance": _OF_INSTANCE,
    },
    ("listInstances", "200"): {
        "getInstance": {"instance_id": _FIRST_ITEM},
        "getInstanceSnapshot": {"instance_id": _FIRST_ITEM},
    },
    ("listExternalTasks", "200"): {
        "getExternalTask": {"task_id": _FIRST_ITEM},
        "claimExternalTask": {"task_id": _FIRST_ITEM},
        "unclaimExternalTask": {"task_id": _FIRST_ITEM},
        "completeExternalTask": {"task_id": _FIRST_ITEM},
    },
    ("listIncidents", "200"): {
        "getIncident": {"incident_id": _FIRST_ITEM},
        "retryIncident": {"incident_id": _FIRST_ITEM},
        "resolveIncident": {"incident_id": _FIRST_ITEM},
    },
    ("fetchAndLock", "200"): {
        operation: {"task_id": "$response.body#/tasks/0/id"}
        for operation in (
            "extendLock",
            "completeWork",
            "reportFailure",
            "reportBusinessError",
            "unlockWork",
        )
    },
    ("createBulkJob", "201"): {
        operation: {"job_id": "$response.body#/id"}
        for operation in ("getBulkJob", "confirmBulkJob", "cancelBulkJob")
    },
    ("listOutboxEvents", "200"): {
        operation: {"event_id": _FIRST_ITEM}
        for operation in ("getOutboxEvent", "resendDeadLetter", "dropDeadLetter")
    },
    ("listTokens", "200"): {
        "getToken": {"token_id": _FIRST_ITEM},
        "revokeToken": {"token_id": _FIRST_ITEM},
    },
    ("listBulkJobs", "200"): {"getBulkJob": {"job_id": _FIRST_ITEM}},
    ("listExecutableTasks", "200"): {
        "getExecutableTask": {"task_id": _FIRST_ITEM},
        "overrideExecutableTask": {"task_id": _FIRST_ITEM},
    },
}
"""Where to go from an answer: by operation and status, the operations that take something of it, and what."""

_REQUEST_ID_HEADER = {
    "description": "Under which the server logs the request: the caller's own, or one made for it.",
    "schema": {"type": "string"},
}
_IDEMPOTENCY_PARAMETER = {
    "name": IDEMPOTENCY_KEY,
    "in": "header",
    "required": False,
    "description": "A repeat with the same key is not carried out again and gets the same answer, for 24 hours.",
    "schema": {
        "type": "string",
        "minLength": 1,
        "maxLength": LONGEST_KEY,
        "pattern": "^[!-~]+$",
    },
}
_REPLAYED_HEADER = {
    "description": "Where a key was given: whether this is the answer to an earlier request with it.",
    "schema": {"type": "string", "enum": ["true", "false"]},
}


def describe(app: FastAPI, base_path: str) -> Json:
    """Return the description of all routes of ``app`` that belong to its API."""
    document = get_openapi(
        title=app.title,
        version=app.version,
        openapi_version="3.1.0",
        description=_DESCRIPTION,
        routes=app.routes,
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for generated in ("HTTPValidationError", "ValidationError"):
        schemas.pop(generated, None)
    schemas["Problem"] = PROBLEM_SCHEMA
    document["components"] |= {
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        "parameters": {"IdempotencyKey": _IDEMPOTENCY_PARAMETER},
        "headers": {"RequestId": _REQUEST_ID_HEADER, "Replayed": _REPLAYED_HEADER},
    }
    for path, method, operation in _operations(document):
        if path.startswith(base_path):
            _add_common(method, operation)
        for response in operation["responses"].values():
            response.setdefault("headers", {})[REQUEST_ID] = {
                "$ref": "#/components/headers/RequestId"
            }
        _add_links(operation)
    return document


def query_parameters(document: Json, operation_id: str) -> list[str]:
    """Return the names of the query parameters of an operation, sorted."""
    for _, _, operation in _operations(document):
        if operation["operationId"] == operation_id:
            found = operation.get("parameters", ())
            return sorted(each["name"] for each in found if each.get("in") == "query")
    return []


def allowed_methods(document: Json, path: str) -> list[str]:
    """Return the methods that a path has; of several templates that fit it, the one that says most of it counts."""
    fitting = [template for template in document["paths"] if _fits(template, path)]
    if not fitting:
        return []
    template = max(fitting, key=lambda each: len(_PARAMETER.sub("", each)))
    return sorted(name.upper() for name in document["paths"][template] if name in _METHODS)


def _fits(template: str, path: str) -> bool:
    literals = _PARAMETER.split(template)
    return bool(re.fullmatch(".+".join(map(re.escape, literals)), path, re.DOTALL))


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]


def _add_common(method: str, operation: Json) -> None:
    """Add what every operation may be refused with, and what a POST may carry."""
    # Where everybody on loopback is trusted, no token is needed.
    operation["security"] = [{}, {"bearer": []}]
    responses: Json = operation["responses"]
    if CODES not in responses.get("422", {}):
        responses.pop("422", None)  # FastAPI's own
    common = [*COMMON["all"]]
    common += COMMON["change"] if method != "get" else ()
    common += COMMON["POST"] if method == "post" else ()
    common += COMMON["body"] if "requestBody" in operation else ()
    for status in dict.fromkeys(str(code.status.value) for code in common):
        declared = responses.get(status, {}).get(CODES, ())
        more = [code for code in common if str(code.status.value) == status]
        codes = list(dict.fromkeys([*(Code[name] for name in declared), *more]))
        responses[status] = refused_with(codes)
    if method == "post":
        operation.setdefault("parameters", []).append(
            {"$ref": "#/components/parameters/IdempotencyKey"}
        )
        for status, response in responses.items():
            if status.startswith("2"):
                response.setdefault("headers", {})[REPLAYED] = {
                    "$ref": "#/components/headers/Replayed"
                }


def _add_links(operation: Json) -> None:
    for (operation_id, status), targets in LINKS.items():
        if operation["operationId"] == operation_id:
            operation["responses"][status]["links"] = {
                target: {"operationId": target, "parameters": dict(parameters)}
                for target, parameters in targets.items()
            }
