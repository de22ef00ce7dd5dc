"""Where the rows of a work list belong: the names of their definition and node, and the business key of their instance."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kikwiflow_worker.errors import DefinitionError
from kikwiflow_worker.management.backend import Caller
from kikwiflow_worker.model.definition import ProcessDefinition


class Row(Protocol):
    """A task, an external task or an incident."""

    @property
    def id(self) -> str:
        """Its own id."""
        ...

    @property
    def instance_id(self) -> str:
        """Its instance."""
        ...

    @property
    def definition_id(self) -> str:
        """The version that the instance runs on."""
        ...

    @property
    def node_id(self) -> str:
        """Its node."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where one row belongs, in words.

    Attributes:
        business_key: None if its instance has ended meanwhile.
        definition: The definition's name, or its key.
        node: The node's name, or its id.
        version: None if the definition is not stored.
    """

    instance_id: str
    business_key: str | None
    definition: str
    version: int | None
    node: str


async def whereabouts_of(caller: Caller, rows: Iterable[Row]) -> Mapping[str, Whereabouts]:
    """Return where each of ``rows`` belongs, by the row's id; the business keys are found in one read."""
    rows = tuple(rows)
    keys = await caller.services.searches.find_business_keys(
        tuple({row.instance_id for row in rows})
    )
    found: dict[str, Whereabouts] = {}
    for row in rows:
        definition = await find_definition(caller, row.definition_id)
        found[row.id] = Whereabouts(
            instance_id=row.instance_id,
            business_key=keys.get(row.instance_id),
            definition=name_of(definition) or row.definition_id,
            version=definition.version if definition else None,
            node=_node_name(definition, row.node_id),
        )
    return found


async def find_definition(caller: Caller, definition_id: str) -> ProcessDefinition | None:
    """Return a definition; None if it is not stored or, written by a later release, cannot be read: lists go without it."""
    try:
        return await caller.services.definitions.find(definition_id)
    except DefinitionError:
        return None


def name_of(definition: ProcessDefinition | None) -> str | None:
    """Return what people call a definition."""
    return (definition.name or definition.key) if definition else None


def _node_name(definition: ProcessDefinition | None, node_id: str) -> str:
    node = definition.flow_nodes.get(node_id) if definition else None
    return (node.name if node else None) or node_id
