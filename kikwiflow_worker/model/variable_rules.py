"""Who may read and write which variable: what a definition says in its properties ``kikwiflow.variables.NAME``.

``masked`` is read by nobody, ``roles=operator,admin`` is read and written by those roles, and ``read=`` and ``write=``
part the two: ``masked; write=operator``. A variable without a property is everybody's.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kikwiflow_worker.model.events import EventType
from kikwiflow_worker.model.variables import Value, Variables

VARIABLE_RULE = "kikwiflow.variables."
"""The prefix of the properties; the variable's name follows."""

ROLE_NAMES = ("viewer", "operator", "deployer", "admin")
"""The roles of the management API; a rule for ``viewer`` lets everybody."""

MASKED = None
"""What stands in the place of a masked value."""

MASKED_TEXT = "(masked: the text may quote variables that are not shown here)"

_TEXTS = frozenset({"message", "errorMessage", "errorStackTrace"})
"""Fields of events that may quote values."""


@dataclass(frozen=True, slots=True)
class VariableRule:
    """Which roles may read and write one variable over the management API."""

    readers: frozenset[str]
    writers: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> "VariableRule":
        """Return the rule of a property.

        Raises:
            ValueError: It cannot be read; the message says what to write, after a semicolon.
        """
        said: dict[str, frozenset[str]] = {}
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
        everybody = frozenset(ROLE_NAMES)
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

Rules = Mapping[str, VariableRule]
"""The rules of variables by their names."""


def _roles(names: str) -> frozenset[str]:
    roles = frozenset(name.strip() for name in names.split(",") if name.strip())
    unknown = sorted(roles - frozenset(ROLE_NAMES))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no role; write {', '.join(ROLE_NAMES)}")
    return roles


def rules_in(properties: Mapping[str, str]) -> dict[str, VariableRule]:
    """Return the rules among a definition's properties; what an older release let pass and nobody can read masks."""
    return {
        name.removeprefix(VARIABLE_RULE): _readable(text)
        for name, text in properties.items()
        if name.startswith(VARIABLE_RULE)
    }


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


def masked_names(rules: Rules, may: Callable[[VariableRule], bool]) -> frozenset[str]:
    """Return the names of the variables that are not to be shown, by what ``may`` says of their rules."""
    return frozenset(name for name, rule in rules.items() if not may(rule))


def everybody_reads(rule: VariableRule) -> bool:
    """Return whether a variable may be shown to anybody, as in what leaves the system."""
    return "viewer" in rule.readers


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
    for field in _TEXTS & shown.keys():
        if isinstance(text := shown[field], str):
            shown[field] = mask_error(text) if field == "message" else MASKED_TEXT
    if isinstance(variables := shown.get("variables"), dict):
        shown["variables"] = mask(variables, names)
    if event is EventType.PROCESS_VARIABLE_CHANGED and shown.get("name") in names:
        shown["value"] = MASKED
    if event is EventType.GATEWAY_ANSWER_RESOLVED and shown.get("providerVariable") in names:
        shown["resolvedAnswer"] = MASKED
    return shown


def mask_error(message: str) -> str:
    """Return what may be shown of an incident's message: the kind of the error."""
    kind, separator, _ = message.partition(":")
    is_kind = bool(separator) and all(part.isidentifier() for part in kind.split("."))
    return f"{kind}: {MASKED_TEXT}" if is_kind else MASKED_TEXT
