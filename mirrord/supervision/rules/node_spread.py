"""On which node replicators run: shared out by the nodes' cores, and moved one at a time when nodes come.

A node that comes gets replicators of its own, and they get their lanes like any newcomer: a few at a time. A node that
is gone is not named any more, and neither are the replicators that it had.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def node_for_next(taken: Iterable[str], nodes: Mapping[str, int]) -> str:
    """Where one more replicator belongs: `taken` names a node for each that there is, `nodes` their cores. Empty when
    no node is known."""
    counts = Counter(taken)
    return min(nodes, key=lambda node: (_load(counts[node] + 1, nodes[node]), counts[node], node), default="")


def fullest_node(taken: Iterable[str], nodes: Mapping[str, int]) -> str:
    """The node with the most replicators by its cores; empty when there are none."""
    counts = Counter(node for node in taken if node in nodes)
    return max(counts, key=lambda node: (_load(counts[node], nodes[node]), node), default="")


def crowded_node(taken: Collection[str], nodes: Mapping[str, int]) -> str:
    """A node that should have one replicator less, because another one would still have fewer by its cores with one
    more; or empty. Following that again and again comes to an end."""
    fullest, emptiest = fullest_node(taken, nodes), node_for_next(taken, nodes)
    counts = Counter(taken)
    if not fullest:
        return ""
    better = _load(counts[emptiest] + 1, nodes[emptiest]) < _load(counts[fullest], nodes[fullest])
    return fullest if better else ""


def _load(replicators: int, cores: int) -> float:
    return replicators / max(cores, 1)
