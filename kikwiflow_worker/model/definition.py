"""Process definitions: what a ``.kikwi`` file holds, and what a deploy makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, ValidationError

from kikwiflow_worker.errors import ExecutionError, InvalidDefinitionError, Problem
from kikwiflow_worker.model.file_problems import type_problems, unknown_field_warnings
from kikwiflow_worker.model.json_source import canonical_source, checksum, read_object
from kikwiflow_worker.model.nodes import TOPIC, FilePart, FlowNode, Properties, Text

__all__ = [
    "DefinitionFile",
    "ParsedDefinition",
    "ProcessDefinition",
    "canonical_source",
    "checksum",
    "parse_definition",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionFile:
    """A readable definition that is not deployed yet, or one deployed version without its number.

    Attributes:
        key: The process's name, under which versions are counted.
        default_start_point: The map key of the node where instances start.
        flow_nodes: Each node by its map key; flows and boundary lists refer to these keys.
        source: The canonical JSON text, with the fields this release does not know.
        checksum: The SHA-256 of ``source``; equal for files that differ in layout or key order only.
    """

    key: str
    name: str | None
    description: str | None
    default_start_point: str | None
    flow_nodes: Mapping[str, FlowNode]
    extension_properties: Mapping[str, str]
    source: str
    checksum: str

    def deployed(self, *, definition_id: str, version: int) -> "ProcessDefinition":
        """Return this file as the given version of its key."""
        return ProcessDefinition(
            id=definition_id,
            version=version,
            key=self.key,
            name=self.name,
            description=self.description,
            default_start_point=self.default_start_point,
            flow_nodes=self.flow_nodes,
            extension_properties=self.extension_properties,
            source=self.source,
            checksum=self.checksum,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDefinition(DefinitionFile):
    """One deployed, versioned, immutable graph.

    Attributes:
        id: Identifies this version in every store.
        version: Counts from 1 for each key.
    """

    id: str
    version: int

    @property
    def start_node_id(self) -> str:
        """The map key of the node where instances start.

        Raises:
            ExecutionError: The definition names none; a deploy refuses such a file.
        """
        if self.default_start_point is None:
            raise ExecutionError(
                f"definition {self.key!r} version {self.version} has no defaultStartPoint; "
                "deploy a version that names its start event"
            )
        return self.default_start_point

    def node(self, node_id: str) -> FlowNode:
        """Return the node with this map key.

        Raises:
            ExecutionError: There is none.
        """
        node = self.flow_nodes.get(node_id)
        if node is None:
            raise ExecutionError(
                f"definition {self.key!r} version {self.version} has no node {node_id!r}; "
                "deploy a version in which every targetNodeId names an entry of flowNodes"
            )
        return node


@dataclass(frozen=True, slots=True)
class ParsedDefinition:
    """What ``parse_definition`` read, and what the author should look at."""

    file: DefinitionFile
    warnings: tuple[Problem, ...]


class _File(FilePart):
    """The top level of a definition file."""

    key: Text
    name: Text | None = None
    description: Text | None = None
    default_start_point: Text | None = None
    flow_nodes: Mapping[str, FlowNode]
    extension_properties: Properties = Field(default_factory=dict)


def parse_definition(source: str | bytes, *, name: str = "definition") -> ParsedDefinition:
    """Read a definition file.

    Whether the graph can run is not looked at; ``kikwiflow_worker.engine.validation.validate`` does that.

    Args:
        source: The file's content, UTF-8 if bytes.
        name: What messages call the file, usually its path.

    Raises:
        InvalidDefinitionError: The file cannot be read. Carries everything that is wrong, and the warnings.
    """
    data, canonical = read_object(source, name=name)
    data = _with_handlers(data)
    warnings = unknown_field_warnings(data, known=_File)
    try:
        parsed = _File.model_validate(_with_map_keys(data))
    except ValidationError as error:
        raise InvalidDefinitionError([*type_problems(error, data), *warnings], name=name) from None
    file = DefinitionFile(
        key=parsed.key,
        name=parsed.name,
        description=parsed.description,
        default_start_point=parsed.default_start_point,
        flow_nodes=parsed.flow_nodes,
        extension_properties=parsed.extension_properties,
        source=canonical,
        checksum=checksum(canonical),
    )
    return ParsedDefinition(file, tuple(warnings))


def _with_handlers(data: Mapping[str, object]) -> dict[str, object]:
    """Return the file with each external task that names a topic as what it is: a task whose handler has that name."""
    nodes = data.get("flowNodes")
    if not isinstance(nodes, Mapping):
        return dict(data)
    return {**data, "flowNodes": {key: _with_handler(node) for key, node in nodes.items()}}


def _with_handler(node: object) -> object:
    if not isinstance(node, Mapping) or node.get("type") != "EXTERNAL_TASK":
        return node
    properties = node.get("extensionProperties")
    topic = properties.get(TOPIC) if isinstance(properties, Mapping) else None
    if not isinstance(topic, str) or not topic.strip():
        return node
    return {**node, "type": "EXECUTABLE_TASK", "executor": topic}


def _with_map_keys(data: Mapping[str, object]) -> dict[str, object]:
    nodes = data.get("flowNodes")
    if not isinstance(nodes, Mapping):
        return dict(data)
    keyed = {key: _with_map_key(key, node) for key, node in nodes.items()}
    return {**data, "flowNodes": keyed}


def _with_map_key(key: str, node: object) -> object:
    if not isinstance(node, Mapping):
        return node
    return {**node, "id": key, "declaredId": node.get("id")}
