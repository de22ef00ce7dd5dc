"""Every row about correlation keys, asked of the resolver itself."""

import pytest

from kikwiflow_worker.engine.correlation_keys import resolve_keys
from kikwiflow_worker.errors import ExecutionError
from kikwiflow_worker.handler import CorrelationItem
from kikwiflow_worker.model.nodes import BoundaryInterruptiveCatchEvent, EventCatcher
from tests.conformance.rows_keys import ROWS, KeyRow
from tests.support.definitions import a_file, a_node, a_start, an_end, read


def node_of(row: KeyRow) -> EventCatcher | BoundaryInterruptiveCatchEvent:
    node_type = "BOUNDARY_INTERRUPTIVE_CATCH_EVENT" if row.is_boundary else "EVENT_CATCHER"
    file = read(a_file(a_start("NODE"), a_node("NODE", node_type, "END", **row.node), an_end()))
    node = file.flow_nodes["NODE"]
    assert isinstance(node, EventCatcher | BoundaryInterruptiveCatchEvent)
    return node


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_a_node_has_the_keys_of_its_row(row: KeyRow) -> None:
    provided = [CorrelationItem(*item) for item in row.provided] if row.provided else None

    if row.items is None:
        with pytest.raises(ExecutionError):
            resolve_keys(node_of(row), row.variables, provided=provided)
    else:
        found = resolve_keys(node_of(row), row.variables, provided=provided)
        assert tuple((item.key, item.display_name) for item in found) == row.items
