"""Checking and deploying definitions."""

from dataclasses import dataclass

from kikwiflow_worker.engine.validation import SUPPORTED_TYPES, validate
from kikwiflow_worker.errors import InvalidDefinitionError, Problem
from kikwiflow_worker.model.definition import DefinitionFile, parse_definition
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.protocol import Deployment


@dataclass(frozen=True, slots=True)
class CheckedDefinition:
    """A definition that can be deployed, and what its author should look at all the same."""

    file: DefinitionFile
    warnings: tuple[Problem, ...]


def check_definition(source: str | bytes, *, name: str) -> CheckedDefinition:
    """Read and validate a definition.

    Raises:
        InvalidDefinitionError: It cannot be deployed; carries all problems at once.
    """
    parsed = parse_definition(source, name=name)
    problems = [*validate(parsed.file, supported_types=SUPPORTED_TYPES), *parsed.warnings]
    if any(problem.is_error for problem in problems):
        raise InvalidDefinitionError(problems, name=name)
    return CheckedDefinition(parsed.file, tuple(problems))


async def deploy(
    services: Services, source: str | bytes, *, name: str, activate: bool = False
) -> Deployment:
    """Check a definition and store it as the next version of its key, unless it is there already.

    Raises:
        InvalidDefinitionError: It cannot be deployed; nothing was stored.
    """
    checked = check_definition(source, name=name)
    return await services.definitions.put(checked.file, activate=activate)
