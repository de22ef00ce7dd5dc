"""What one identity may see and change of the variables of an instance: the only place that decides it.

A definition says it (``model.variable_rules``). Shapes and pages take a ``VariablePolicy`` and cannot be made without
one, so that no route forgets to ask. A definition that is not found shows nothing.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from kikwiflow_worker.errors import DefinitionError
from kikwiflow_worker.management.problems import PermissionDeniedError
from kikwiflow_worker.model.definition import ProcessDefinition
from kikwiflow_worker.model.events import EventType
from kikwiflow_worker.model.identity import Identity, Role
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.model.variable_rules import (
    MASKED_RULE,
    MASKED_TEXT,
    NOTHING_INHERITED,
    Rules,
    VariableRule,
    all_names,
    mask_error,
    mask_event,
    masked_names,
    rules_of,
)
from kikwiflow_worker.model.variables import UnreadableVariables, Value, Variables
from kikwiflow_worker.operations.services import Services
from kikwiflow_worker.store.search import InstanceSearch

_EVENTS = frozenset(EventType)
_FRAME = re.compile(r' {2}File "[^"\n]{1,500}", line \d{1,7}, in [\w<>.]{1,200}')


class Asking(Protocol):
    """Who asks, and what they may use: a ``Caller``."""

    @property
    def identity(self) -> Identity:
        """Who makes the request."""
        ...

    @property
    def services(self) -> Services:
        """The services as they may use them."""
        ...


class OfInstance(Protocol):
    """A row that belongs to an instance: a task, an external task, an incident."""

    @property
    def instance_id(self) -> str:
        """The instance."""
        ...

    @property
    def definition_id(self) -> str:
        """The version that it runs on."""
        ...


@dataclass(frozen=True, slots=True)
class VariablePolicy:
    """What ``identity`` may see and change where ``rules`` apply.

    Attributes:
        shows_nothing: The rules are unknown: every value and text is masked.
    """

    identity: Identity
    rules: Rules = field(default_factory=dict)
    shows_nothing: bool = False

    def may_read(self, name: str) -> bool:
        """Return whether the value of a variable may be shown."""
        return self._may(self._rule(name), "readers")

    def may_write(self, name: str) -> bool:
        """Return whether a variable may be set or removed."""
        return self._may(self._rule(name), "writers")

    @property
    def reads_all(self) -> bool:
        """Whether nothing is masked, so that texts which may quote values can be shown."""
        return not self.shows_nothing and all(map(self.may_read, self.rules))

    def visible(self, variables: Variables) -> dict[str, Value]:
        """Return the variables whose values may be shown; none of those that cannot be decrypted."""
        if isinstance(variables, UnreadableVariables):
            return {}
        return {name: value for name, value in variables.items() if self.may_read(name)}

    def check_writes(self, names: Iterable[str]) -> None:
        """Refuse to set or remove variables that this identity may not write.

        Raises:
            PermissionDeniedError: Names the first one.
        """
        for name in names:
            if not self.may_write(name):
                raise PermissionDeniedError(
                    f"{self.identity.actor} may not write variable {name!r}: the definition's property "
                    f"kikwiflow.variables.{name} lets other roles only"
                )

    def message(self, text: str) -> str:
        """Return an incident's message as it may be shown: whole, or the kind of the error."""
        return text if self.reads_all else mask_error(text)

    def error(self, text: str | None) -> str | None:
        """Return a task's last error as it may be shown: whole, or that there is one."""
        return text if text is None or self.reads_all else MASKED_TEXT

    def stack_trace(self, text: str) -> str:
        """Return a stack trace as it may be shown: whole, or where it went, without any message."""
        if self.reads_all or not text:
            return text
        frames = [line for line in text.splitlines() if _FRAME.fullmatch(line)]
        return "\n".join([*frames, MASKED_TEXT])

    def event(self, event: str, payload: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return an event's payload as it may be shown; of one that only a newer release knows, all or nothing."""
        if event not in _EVENTS:
            return payload if self.reads_all else {}
        names = masked_names(self.rules, lambda rule: self._may(rule, "readers"))
        if self.shows_nothing:
            names |= all_names(payload)
        return mask_event(EventType(event), payload, names)

    def _rule(self, name: str) -> VariableRule | None:
        return MASKED_RULE if self.shows_nothing else self.rules.get(name)

    def _may(self, rule: VariableRule | None, how: str) -> bool:
        if rule is None:
            return True
        roles: frozenset[Role] = getattr(rule, how)
        return any(self.identity.may(role) for role in roles)


async def policy_of(caller: Asking, instance: ProcessInstance) -> VariablePolicy:
    """Return what the caller may see and change of an instance."""
    return await _policy(caller, instance.definition_id, instance.inherited_rules)


async def policy_for(caller: Asking, row: OfInstance) -> VariablePolicy:
    """Return what the caller may see of the instance that ``row`` belongs to."""
    return (await policies_of(caller, [row]))[row.instance_id]


async def policies_of(caller: Asking, rows: Iterable[OfInstance]) -> dict[str, VariablePolicy]:
    """Return what the caller may see of the instances that ``rows`` belong to, by instance id."""
    definition_ids = {row.instance_id: row.definition_id for row in rows}
    inherited = await caller.services.rules.find_inherited(definition_ids)
    return {
        instance_id: await _policy(
            caller, definition_id, inherited.get(instance_id, NOTHING_INHERITED)
        )
        for instance_id, definition_id in definition_ids.items()
    }


async def allowed_search(caller: Asking, query: InstanceSearch) -> InstanceSearch:
    """Return ``query`` so that it tells nothing of what the caller may not read: equality would give a value away.

    Raises:
        PermissionDeniedError: It asks for the value of a variable that a definition among those asked for masks.
    """
    names = tuple(query.variables)
    ruling = await caller.services.rules.find_definitions(names) if names else ()
    masking = [
        (definition, masked)
        for definition in ruling
        if (masked := _masked_of(caller.identity, definition, names))
    ]
    for definition, masked in masking:
        if _is_asked_for(definition, query):
            raise PermissionDeniedError(
                f"{caller.identity.actor} may not search by the value of variable {masked[0]!r}: definition "
                f"{definition.key!r} version {definition.version} masks it; leave it out, or name other definitions"
            )
    return replace(query, not_inherited=names) if masking else query


def _masked_of(
    identity: Identity, definition: ProcessDefinition, names: tuple[str, ...]
) -> list[str]:
    policy = VariablePolicy(identity, rules_of(definition))
    return [name for name in names if not policy.may_read(name)]


def _is_asked_for(definition: ProcessDefinition, query: InstanceSearch) -> bool:
    if not query.definition_ids and not query.definition_keys:
        return True
    return definition.id in query.definition_ids or definition.key in query.definition_keys


async def check_writes(caller: Asking, instance_id: str, names: Iterable[str]) -> None:
    """Refuse to set or remove variables that the caller may not write; an instance that does not run refuses itself.

    Raises:
        PermissionDeniedError: Names the first one.
    """
    instance = await caller.services.runtime.find_instance(instance_id)
    if instance is not None:
        (await policy_of(caller, instance)).check_writes(names)


def start_check(caller: Asking, names: Iterable[str]) -> Callable[[ProcessDefinition], None]:
    """Return what refuses to start a version with variables that the caller may not write.

    It is for ``instances.start``, which alone knows the version: a check before could be of another one.
    """

    def check(definition: ProcessDefinition) -> None:
        VariablePolicy(caller.identity, rules_of(definition)).check_writes(names)

    return check


async def check_kept(caller: Asking, names: Collection[str]) -> None:
    """Refuse to keep a message for whoever waits for it later: it may be of any definition.

    Raises:
        PermissionDeniedError: A definition has a rule for one of the variables ``names`` by which the caller may not write it.
    """
    for definition in await caller.services.rules.find_definitions(tuple(names)) if names else ():
        VariablePolicy(caller.identity, rules_of(definition)).check_writes(names)


async def _policy(
    caller: Asking, definition_id: str, inherited: Mapping[str, str]
) -> VariablePolicy:
    try:
        definition = await caller.services.definitions.find(definition_id)
    except DefinitionError:  # a later release wrote it
        definition = None
    if definition is None:
        return VariablePolicy(caller.identity, shows_nothing=True)
    return VariablePolicy(caller.identity, rules_of(definition, inherited))
