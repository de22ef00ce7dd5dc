"""The variables of a running step: what user code sees, and what is to be stored."""

from kikwiflow_worker.model.variables import (
    AppendToVariable,
    Value,
    VariableChange,
    Variables,
    apply_change,
    check_size,
    check_total,
    net_changes,
    size_of,
)


class WorkingVariables:
    """The stored variables of an instance, the changes of this step, and the transient ones over them."""

    def __init__(self, stored: Variables) -> None:
        self._stored = dict(stored)
        self._transient: dict[str, Value] = {}
        self._changes: tuple[VariableChange, ...] = ()

    @property
    def stored(self) -> dict[str, Value]:
        """What the instance will have after this step."""
        return dict(self._stored)

    @property
    def changes(self) -> tuple[VariableChange, ...]:
        """What the changes of this step come to."""
        return self._changes

    @property
    def transient_names(self) -> frozenset[str]:
        """The names of variables that are never stored."""
        return frozenset(self._transient)

    def visible(self) -> dict[str, Value]:
        """Return what user code sees: the stored variables, and over them the transient ones."""
        return {**self._stored, **self._transient}

    def apply(self, changes: tuple[VariableChange, ...], transient: Variables) -> None:
        """Take over what a handler did, all or none.

        Args:
            transient: All transient variables after the handler.

        Raises:
            VariableError: A sum left 64 bits, a list became too large, or all variables together would pass the limit
                of an instance.
        """
        if changes:
            stored = dict(self._stored)
            for change in changes:
                apply_change(stored, change)
            for name in {each.name for each in changes if isinstance(each, AppendToVariable)}:
                check_size(name, size_of(stored.get(name)))
            check_total(stored, before=self._stored)
            self._changes = net_changes([*self._changes, *changes])
            self._stored = stored
        self._transient = dict(transient)
