"""Chooses the Ray node for each replicator. Replicators are distributed across the nodes in proportion to the number of
cores on each node.

When a node is added, replicators on crowded nodes are replaced by new replicators on the added node, one at a time.
Like every new replicator, a replicator that starts there gets a few lanes at a time. Lost nodes and their replicators
are not part of the input.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def node_for_next(taken: Iterable[str], nodes: Mapping[str, int]) -> str:
    """Return the node on which the next replicator should start, or an empty string if no node is known.

    `taken` contains the node of each existing replicator. `nodes` maps each node to its number of cores.
    """
    counts = Counter(taken)
    return min(nodes, key=lambda node: (_load(counts[node] + 1, nodes[node]), counts[node], node), default="")


def fullest_node(taken: Iterable[str], nodes: Mapping[str, int]) -> str:
    """Return the node with the most replicators per core, or an empty string if there are no replicators."""
    counts = Counter(node for node in taken if node in nodes)
    return max(counts, key=lambda node: (_load(counts[node], nodes[node]), node), default="")


def crowded_node(taken: Collection[str], nodes: Mapping[str, int]) -> str:
    """Return a node that should give up a replicator in favor of another node, or an empty string if there is none.

    The node with the most replicators per core gives up one replicator if another node would still have fewer per core
    after gaining one. Repeated calls therefore do not move replicators back and forth between nodes.
    """
    fullest, emptiest = fullest_node(taken, nodes), node_for_next(taken, nodes)
    counts = Counter(taken)
    if not fullest:
        return ""
    better = _load(counts[emptiest] + 1, nodes[emptiest]) < _load(counts[fullest], nodes[fullest])
    return fullest if better else ""


def _load(replicators: int, cores: int) -> float:
    return replicators / max(cores, 1)
