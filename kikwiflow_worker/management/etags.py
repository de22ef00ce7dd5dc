"""Documents that a caller may know already: ``ETag``, ``If-None-Match`` and 304."""

import hashlib

from fastapi import Request, Response
from pydantic import BaseModel

from kikwiflow_worker.management.api.refusals import Responses

NOT_MODIFIED: Responses = {
    304: {"description": "The caller's `If-None-Match` names what would be answered."}
}


def unless_known(request: Request, document: BaseModel) -> Response:
    """Return the document, or 304 if the caller knows it by its ETag, which is made from its content."""
    body = document.model_dump_json(by_alias=True).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    # Private: who may read it is decided for each caller.
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if _knows(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _knows(given: str, tag: str) -> bool:
    tags = {each.strip().removeprefix("W/") for each in given.split(",")}
    return "*" in tags or tag in tags
