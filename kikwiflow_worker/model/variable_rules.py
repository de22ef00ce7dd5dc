"""Who may read and write which variable: what a definition says in its properties ``kikwiflow.variables.NAME``.

``masked`` is read by nobody, ``roles=operator,admin`` is read and written by those roles, and ``read=`` and ``write=``
part the two: ``masked; write=operator``. A variable without a property is everybody's.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from kikwiflow_worker.model.definition import DefinitionFile
from kikwiflow_worker.model.events import EVENT_TEXTS, EventType
from kikwiflow_worker.model.identity import Role
from kikwiflow_worker.model.runtime import ProcessInstance
from kikwiflow_worker.model.variables import Value, Variables

VARIABLE_RULE = "kikwiflow.variables."
"""The prefix of the properties; the variable's name follows."""

MASKED = None
"""What stands in the place of a masked value."""

MASKED_TEXT = "(masked: the text may quote variables that are not shown here)"

_ROLES = frozenset(role.value for role in Role)


@dataclass(frozen=True, slots=True)
class VariableRule:
    """Which roles may read and write one variable over the management API."""

    readers: frozenset[Role]
    writers: frozenset[Role]

    @classmethod
    def parse(cls, text: str) -> "VariableRule":
        """Return the rule of a property.

        Raises:
            ValueError: It cannot be read; the message says what to write, after a semicolon.
        """
        said: dict[str, frozenset[Role]] = {}
        for clause in text.split(";"):
            word, has_roles, names = (part.strip() for part in clause.partition("="))
            if word == "masked" and not has_roles:
                said["read"] = frozenset()
            elif word in ("roles", "read", "write") and has_roles:
                said[word] = _roles(names)
            else:
                raise ValueError(
                    f"{clause.strip()!r} is no rule; write masked, roles=ROLE,ROLE, read=ROLE,ROLE or write=ROLE,ROLE"
                )
        if "roles" in said and len(said) > 1:
            raise ValueError("roles= stands alone; write read= and write= instead")
        everybody = frozenset(Role)
        readers = said.get("roles", said.get("read", everybody))
        return cls(readers, said.get("write", readers))

    def and_also(self, other: "VariableRule") -> "VariableRule":
        """Return the rule by which only those may whom both let."""
        return VariableRule(self.readers & other.readers, self.writers & other.writers)

    @property
    def text(self) -> str:
        """The rule as a property has it."""
        readers = f"read={','.join(sorted(self.readers))}" if self.readers else "masked"
        return f"{readers}; write={','.join(sorted(self.writers))}"


MASKED_RULE = VariableRule(frozenset(), frozenset())

NOTHING_INHERITED: Mapping[str, str] = MappingProxyType({})

Rules = Mapping[str, VariableRule]
"""The rules of variables by their names."""


def _roles(names: str) -> frozenset[Role]:
    given = [name.strip() for name in names.split(",") if name.strip()]
    unknown = [name for name in given if name not in _ROLES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no role; write {', '.join(Role)}")
    return frozenset(map(Role, given))


def rules_in(properties: Mapping[str, str]) -> dict[str, VariableRule]:
    """Return the rules among a definition's properties; what an older release let pass and nobody can read masks."""
    return parse_rules(
        {
            name.removeprefix(VARIABLE_RULE): text
            for name, text in properties.items()
            if name.startswith(VARIABLE_RULE)
        }
    )


def _readable(text: str) -> VariableRule:
    try:
        return VariableRule.parse(text)
    except ValueError:
        return MASKED_RULE


def combined(*all_rules: Rules) -> dict[str, VariableRule]:
    """Return the rules by which only those may whom all let."""
    together: dict[str, VariableRule] = {}
    for rules in all_rules:
        for name, rule in rules.items():
            together[name] = rule.and_also(together[name]) if name in together else rule
    return together


def rules_of(
    definition: DefinitionFile, inherited: Mapping[str, str] = NOTHING_INHERITED
) -> dict[str, VariableRule]:
    """Return the rules of an instance: those of its version, and what it inherited as ``ProcessInstance`` has it."""
    own = rules_in(definition.extension_properties)
    return combined(own, parse_rules(inherited)) if inherited else own


def rules_for_children(parent: ProcessInstance, definition: DefinitionFile) -> dict[str, str]:
    """Return what the children of an instance inherit: they get its variables, so its rules go with them."""
    rules = rules_of(definition, parent.inherited_rules)
    return {name: rule.text for name, rule in rules.items()}


def parse_rules(texts: Mapping[str, str]) -> dict[str, VariableRule]:
    """Return rules by the names of their variables; what nobody can read masks."""
    return {name: _readable(text) for name, text in texts.items()}


def masked_names(rules: Rules, may: Callable[[VariableRule], bool]) -> frozenset[str]:
    """Return the names of the variables that are not to be shown, by what ``may`` says of their rules."""
    return frozenset(name for name, rule in rules.items() if not may(rule))


def everybody_reads(rule: VariableRule) -> bool:
    """Return whether a variable may be shown to anybody, as in what leaves the system."""
    return Role.VIEWER in rule.readers


def mask(variables: Variables, names: Iterable[str]) -> dict[str, Value]:
    """Return ``variables`` with ``names`` masked."""
    hidden = frozenset(names)
    return {name: MASKED if name in hidden else value for name, value in variables.items()}


def mask_event(
    event: EventType, payload: Mapping[str, Value], names: frozenset[str]
) -> Mapping[str, Value]:
    """Return an event's payload in which the variables ``names`` are masked, and every text that may quote them."""
    if not names:
        return payload
    shown = dict(payload)
    for field in EVENT_TEXTS:
        if isinstance(text := shown.get(field), str):
            shown[field] = mask_error(text) if field == "message" else MASKED_TEXT
    if isinstance(variables := shown.get("variables"), dict):
        shown["variables"] = mask(variables, names)
    if event is EventType.PROCESS_VARIABLE_CHANGED and shown.get("name") in names:
        shown["value"] = MASKED
    if event is EventType.GATEWAY_ANSWER_RESOLVED and shown.get("providerVariable") in names:
        shown["resolvedAnswer"] = MASKED
    return shown


def all_names(payload: Mapping[str, Value]) -> frozenset[str]:
    """Return all variables that an event's payload tells of, to mask them where nobody knows the rules."""
    variables = payload.get("variables")
    names = frozenset(variables) if isinstance(variables, dict) else frozenset()
    return names | {str(payload.get("name")), str(payload.get("providerVariable"))}


def mask_error(message: str) -> str:
    """Return what may be shown of an incident's message: the kind of the error."""
    kind, separator, _ = message.partition(":")
    is_kind = bool(separator) and all(part.isidentifier() for part in kind.split("."))
    return f"{kind}: {MASKED_TEXT}" if is_kind else MASKED_TEXT
