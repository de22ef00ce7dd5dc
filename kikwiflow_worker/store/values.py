"""What commits take and give, in domain words."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from kikwiflow_worker.errors import KikwiflowError
from kikwiflow_worker.model.capability import Capabilities
from kikwiflow_worker.model.unit_of_work import Committed, UnitOfWork
from kikwiflow_worker.model.variables import Variables


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOn:
    """For whom the rows that a commit inserts may be born claimed (protocol R16)."""

    worker_id: str
    lock: timedelta
    capabilities: Capabilities


@dataclass(frozen=True, slots=True)
class GroupedUnit:
    """A unit of work that may share its transaction with others.

    Attributes:
        may_hand_on: Whether the first task it inserts that can run at once may be born claimed by this worker.
    """

    unit: UnitOfWork
    may_hand_on: bool = False


GroupResult: TypeAlias = Committed | KikwiflowError
"""What became of one unit of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """How a person puts an incident right.

    Attributes:
        variables: Set in the same transaction, before the task goes on.
        skip: Let the path go on as if the handler had run; for executable tasks only.
    """

    variables: Variables = field(default_factory=dict)
    skip: bool = False


PLAIN_RETRY = Resolution()
"""Run it again as it is."""
