"""Which node of our file plays the part of which node of the Java engine's: both are walked side by side."""

from tests.support.definitions import Json

_SAME = (
    "type",
    "commitBefore",
    "commitAfter",
    "catchType",
    "matchPolicy",
    "providerType",
    "retryPolicy",
    "schedulePolicy",
    "iterationMode",
)
"""What nodes of the same part have in common. Timers also share their static value."""


class DifferentTopologyError(Exception):
    """The two definitions do not have the same shape."""


def paired_nodes(own: Json, java: Json) -> dict[str, str]:
    """Return the id of each of our nodes with that of the other file's.

    Raises:
        DifferentTopologyError: Two nodes that are reached the same way are not of the same kind.
    """
    pairs: dict[str, str] = {}
    _pair(
        own["flowNodes"],
        java["flowNodes"],
        own["defaultStartPoint"],
        java["defaultStartPoint"],
        pairs,
    )
    if len(set(pairs.values())) != len(pairs) or len(pairs) != len(java["flowNodes"]):
        raise DifferentTopologyError(
            f"{own['key']} and {java['key']} have different nodes: {pairs}"
        )
    return pairs


def _pair(own: Json, java: Json, own_id: str, java_id: str, pairs: dict[str, str]) -> None:
    if own_id in pairs:
        if pairs[own_id] != java_id:
            raise DifferentTopologyError(f"{own_id} is both {pairs[own_id]} and {java_id}")
        return
    pairs[own_id] = java_id
    ours, theirs = own[own_id], java[java_id]
    if _kind(ours) != _kind(theirs):
        raise DifferentTopologyError(f"{own_id} {_kind(ours)} is not {java_id} {_kind(theirs)}")
    next_own, next_java = _next(ours), _next(theirs)
    if len(next_own) != len(next_java):
        raise DifferentTopologyError(f"{own_id} and {java_id} do not lead to as many nodes")
    for each, other in zip(next_own, next_java, strict=True):
        _pair(own, java, each, other, pairs)


def _kind(node: Json) -> Json:
    kind = {name: node.get(name) or None for name in _SAME}
    kind["value"] = node.get("staticValue")
    kind["flows"] = [
        (bool(flow.get("isDefault")), bool(flow.get("handlesNull"))) for flow in node["outgoing"]
    ]
    return kind


def _next(node: Json) -> list[str]:
    targets = [flow["targetNodeId"] for flow in node["outgoing"]]
    return targets + (node.get("boundaryEventIds") or [])
