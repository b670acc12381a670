"""Choose the node for each replicator: spread them by the nodes' cores, and move one at a time to new nodes.

A new node gets replicators, and these get their lanes like any newcomer: a few at a time. A node that is gone is no
longer listed, and neither are the replicators that it had.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping


def node_for_next(taken: Iterable[str], nodes: Mapping[str, int]) -> str:
    """Return the node for the next replicator, or an empty string if no node is known.

    `taken` names the node of each existing replicator; `nodes` gives each node's cores.
    """
    counts = Counter(taken)
    return min(nodes, key=lambda node: (_load(counts[node] + 1, nodes[node]), counts[node], node), default="")


def fullest_node(taken: Iterable[str], nodes: Mapping[str, int]) -> str:
    """Return the node with the most replicators per core, or an empty string if there are none."""
    counts = Counter(node for node in taken if node in nodes)
    return max(counts, key=lambda node: (_load(counts[node], nodes[node]), node), default="")


def crowded_node(taken: Collection[str], nodes: Mapping[str, int]) -> str:
    """Return a node that should have one replicator less, or an empty string.

    There is one if another node would have fewer replicators per core even after getting one more. Repeating this step
    terminates.
    """
    fullest, emptiest = fullest_node(taken, nodes), node_for_next(taken, nodes)
    counts = Counter(taken)
    if not fullest:
        return ""
    better = _load(counts[emptiest] + 1, nodes[emptiest]) < _load(counts[fullest], nodes[fullest])
    return fullest if better else ""


def _load(replicators: int, cores: int) -> float:
    return replicators / max(cores, 1)
