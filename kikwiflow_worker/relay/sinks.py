"""Where outbox events go: the contract of a sink, and how one is found by its name.

A sink of one's own is a function that an installed distribution names in the entry point group ``kikwiflow.sinks``::

    [project.entry-points."kikwiflow.sinks"]
    orders = "shop.events:open_sink"
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from kikwiflow_worker.errors import ConfigurationError
from kikwiflow_worker.relay.message import Message

ENTRY_POINT_GROUP = "kikwiflow.sinks"
"""Each entry names a function that takes the options and returns a sink."""

Options = Mapping[str, str]
"""What ``relay_options`` says, by name."""

_BUILT_IN = {
    "kafka": "kikwiflow_worker.relay.kafka",
    "stdout": "kikwiflow_worker.relay.stdout",
    "webhook": "kikwiflow_worker.relay.webhook",
}


class RefusedError(Exception):
    """A sink's word that it will never take this event as it is, such as one that is too large.

    Any other exception means that it was not taken now: it is tried again, and counts against the event only if the sink
    takes other events meanwhile.
    """


class Sink(Protocol):
    """Takes events. All methods are called on one event loop; ``deliver`` many times at once, for different instances."""

    async def open(self) -> None:
        """Get ready; called before anything is delivered, and again after ``close`` if the relay begins anew."""
        ...

    async def deliver(self, message: Message) -> None:
        """Return when the event is safe at its destination; it may come again, with the same id.

        Cancelled after the relay's time-out, 15 seconds.

        Raises:
            RefusedError: It will never be taken as it is.
            Exception: It was not taken now.
        """
        ...

    async def close(self) -> None:
        """Give connections back; called also if ``open`` failed."""
        ...


OpenSink = Callable[[Options], Sink]
"""Makes a sink from its options; raises ``ConfigurationError`` for what is wrong with them."""


def load_sink(name: str, options: Options) -> Sink:
    """Return the sink of a name: a built-in one, or one that an installed distribution offers.

    Raises:
        ConfigurationError: There is none, two distributions offer it, it cannot be imported, or its options are wrong.
    """
    offered = [point for point in entry_points(group=ENTRY_POINT_GROUP) if point.name == name]
    if name in _BUILT_IN:
        if offered:
            raise ConfigurationError(
                f"sink {name!r} is built in, and {_origin(offered[0])} offers one of the same name; rename that one"
            )
        return _built_in(name)(options)
    if not offered:
        known = {*_BUILT_IN, *entry_points(group=ENTRY_POINT_GROUP).names}
        raise ConfigurationError(
            f"there is no sink {name!r}; known are {', '.join(sorted(known))}. One of your own is an entry point of the "
            f"group {ENTRY_POINT_GROUP!r}"
        )
    if len(offered) > 1:
        who = " and ".join(map(_origin, offered))
        raise ConfigurationError(f"sink {name!r} is offered by {who}; remove one")
    try:
        open_sink: OpenSink = offered[0].load()
    except Exception as error:
        raise ConfigurationError(
            f"sink {name!r} of {_origin(offered[0])} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return open_sink(options)


def check_options(sink: str, options: Options, *, required: set[str], optional: set[str]) -> None:
    """Refuse options that a sink does not know, and a sink without those that it needs.

    Raises:
        ConfigurationError: Names them.
    """
    problems = [f"{name} is missing" for name in sorted(required - options.keys())]
    problems += [f"{name} is not known" for name in sorted(options.keys() - required - optional)]
    if problems:
        takes = ", ".join([*sorted(required), *(f"[{name}]" for name in sorted(optional))])
        raise ConfigurationError(
            f"relay_options of sink {sink!r}: {'; '.join(problems)}. It takes {takes or 'none'}"
        )


def _built_in(name: str) -> OpenSink:
    try:
        open_sink: OpenSink = import_module(_BUILT_IN[name]).open_sink
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"sink {name!r} needs the package {error.name}: pip install 'kikwiflow-worker[{name}]'"
        ) from error
    return open_sink


def _origin(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else point.value
