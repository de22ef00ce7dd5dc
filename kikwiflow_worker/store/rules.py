"""The port of who may read which variable: what no row says about itself.

Not narrowed to a tenant: definitions belong to none, and rules say nothing about the instances that they are of.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

from kikwiflow_worker.model.definition import ProcessDefinition


class RuleStore(Protocol):
    """Looks up rules of variables (``model.variable_rules``)."""

    async def find_inherited(
        self, instance_ids: Collection[str]
    ) -> Mapping[str, Mapping[str, str]]:
        """Return the ``inherited_rules`` of running and ended instances, for those that have some."""
        ...

    async def find_definitions(self, names: Collection[str]) -> tuple[ProcessDefinition, ...]:
        """Return every version, of all definitions, that has a rule for one of the variables ``names``."""
        ...
