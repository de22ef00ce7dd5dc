"""Checking and deploying definitions."""

from collections.abc import Sequence
from dataclasses import dataclass

from kikwiflow_worker.engine.validation import missing_handlers, validate
from kikwiflow_worker.errors import InvalidDefinitionError, Problem
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.definition import DefinitionFile, parse_definition
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.protocol import Deployment


@dataclass(frozen=True, slots=True)
class CheckedDefinition:
    """A definition that can be deployed, and what its author should look at all the same."""

    file: DefinitionFile
    warnings: tuple[Problem, ...]


def check_definition(
    source: str | bytes, *, name: str, capabilities: Capabilities | None = None
) -> CheckedDefinition:
    """Read and validate a definition.

    Args:
        capabilities: All handlers there are, if this process knows them: what they lack is an error.

    Raises:
        InvalidDefinitionError: It cannot be deployed; carries all problems at once.
    """
    parsed = parse_definition(source, name=name)
    problems = [*validate(parsed.file), *parsed.warnings]
    if capabilities is not None:
        problems += missing_handlers(parsed.file, capabilities)
    if any(problem.is_error for problem in problems):
        raise InvalidDefinitionError(problems, name=name)
    return CheckedDefinition(parsed.file, tuple(problems))


async def deploy(
    services: Services, checked: CheckedDefinition, *, activate: bool = False
) -> Deployment:
    """Store a checked definition as the next version of its key, unless it is there already."""
    return await services.definitions.put(checked.file, activate=activate)


async def deploy_all(
    services: Services, checked: Sequence[CheckedDefinition], *, activate: bool = False
) -> tuple[Deployment, ...]:
    """Store checked definitions as ``deploy`` does, all of them or none."""
    return await services.definitions.put_all([each.file for each in checked], activate=activate)
