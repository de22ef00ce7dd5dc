"""Every error that the package raises.

::

    KikwiflowError
    ├─ ConfigurationError          settings, handler modules, server set-up                exit 78
    │  └─ HandlerLoadError
    ├─ DefinitionError
    │  ├─ InvalidDefinitionError   carries all problems of a file
    │  └─ DefinitionNotFoundError
    ├─ ExecutionError              a step cannot be run as defined
    │  ├─ VariableError            a variable that cannot be stored
    │  └─ EncryptionError          a variable that cannot be decrypted
    ├─ OperationError
    │  ├─ NotFoundError            no such instance, task, incident
    │  ├─ ConflictError            somebody else was faster, or the state forbids it
    │  │  └─ LockLostError         an external worker's lock has lapsed, and the task is somebody else's
    │  └─ TenantBoundError         it concerns all tenants, and who asks is bound to one
    └─ StoreError
       ├─ StoreUnavailableError    retryable                                               exit 69
       │  └─ StoreRefusedError     credentials, roles, certificates                        exit 78
       ├─ ClaimLostError           an ordinary outcome: somebody else holds the task now
       ├─ DuplicateStartError      the start key belongs to an earlier start
       ├─ DuplicateMessageError    the message id belongs to an earlier message
       └─ SchemaMismatchError                                                              exit 78

``HandlerSignal`` (in ``kikwiflow_worker.handler``) is the other tree: what *handlers* raise to ask for something.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


class KikwiflowError(Exception):
    """The base of all errors of this package.

    Attributes:
        retryable: Whether the same call can succeed later without anybody changing anything.
        exit_code: What the command line exits with.
    """

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1


class ConfigurationError(KikwiflowError):
    """Settings, handler modules or the server's set-up do not allow a start."""

    exit_code = 78


class HandlerLoadError(ConfigurationError):
    """One or more handler modules cannot be imported, or two of them claim the same name.

    Attributes:
        problems: One line for each module or name, naming the distribution it comes from.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__(
            "handlers cannot be loaded:\n" + "\n".join(f"  - {problem}" for problem in problems)
        )


class DefinitionError(KikwiflowError):
    """Something is wrong with a process definition."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding about a definition.

    Attributes:
        path: Where in the file, as ``flowNodes.APPROVE.outgoing[0].targetNodeId``; empty for the whole file.
        message: What is wrong.
        hint: What to write instead.
        is_error: Whether it prevents a deploy; otherwise it is a warning.
    """

    path: str
    message: str
    hint: str
    is_error: bool = True

    def __str__(self) -> str:
        """Return one line: severity, path, what is wrong, what to do."""
        severity = "error" if self.is_error else "warning"
        return f"{severity}: {self.path or '(file)'}: {self.message}; {self.hint}"


class InvalidDefinitionError(DefinitionError):
    """A definition cannot be deployed.

    Attributes:
        problems: All findings, errors and warnings, in the order of the file.
    """

    def __init__(self, problems: Sequence[Problem], *, name: str = "definition") -> None:
        self.problems = tuple(problems)
        self.name = name
        errors = [problem for problem in problems if problem.is_error]
        lines = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"{name} cannot be deployed, {len(errors)} error(s):\n{lines}")


class DefinitionNotFoundError(DefinitionError):
    """No definition has this key, version or id."""


class ExecutionError(KikwiflowError):
    """A step cannot be run as its definition says: no flow matches, a variable is missing, a value cannot be read."""


class VariableError(ExecutionError):
    """A variable's name or value cannot be stored.

    Attributes:
        variable: The variable's name.
    """

    def __init__(self, variable: str, reason: str) -> None:
        self.variable = variable
        super().__init__(f"variable {variable!r} {reason}")


class VariableTooLargeError(VariableError):
    """A variable, or all variables of an instance together, would pass the size limit."""


class EncryptionError(ExecutionError):
    """A stored value cannot be decrypted: its key is not here or another one, or the value was altered. It stays as it is."""


class OperationError(KikwiflowError):
    """An operation on the runtime cannot be carried out."""


class NotFoundError(OperationError):
    """Nothing has this id, or it has ended."""


class ConflictError(OperationError):
    """The state does not allow it: it is done already, it belongs to somebody else, or somebody was faster."""


class LockLostError(ConflictError):
    """The lock of a fetched task is lost: it lapsed and somebody else has the task, or a person changed it."""


class TenantBoundError(OperationError):
    """It concerns all tenants, and who asks is bound to one. Nothing was read or written."""


class StoreError(KikwiflowError):
    """The store refused or failed."""


class StoreUnavailableError(StoreError):
    """The store did not answer within its time-out. Nothing is known to have been written."""

    retryable = True
    exit_code = 69


class StoreRefusedError(StoreUnavailableError):
    """The database is there and refuses us: the credentials, the roles of the user, or a certificate.

    Somebody must put that right, so a start or a command ends with it. A worker that runs takes it for an outage: it goes
    on asking, since passwords and certificates are changed under running workers. Nothing is known to have been written.
    """

    retryable = False
    exit_code = 78


class ClaimLostError(StoreError):
    """A guard of a unit of work matched nothing: somebody else was faster. Nothing was written.

    Attributes:
        guard: The guard that matched nothing; None if the instance is not running any more.
    """

    def __init__(self, guard: object, message: str | None = None) -> None:
        self.guard = guard
        super().__init__(message or f"somebody else was faster: {guard} matched nothing")


class DuplicateStartError(StoreError):
    """A start key is in use already. Nothing was written."""


class DuplicateMessageError(StoreError):
    """A message id is in use already. Nothing was written."""


class SchemaMismatchError(StoreError):
    """The database has another schema than this release, or an index of ours has other options."""

    exit_code = 78
