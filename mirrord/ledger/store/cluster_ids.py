"""Checks that a ledger belongs to the clusters of a flow."""

from mirrord.ledger.errors import ForeignFlow
from mirrord.ledger.facts.core import FlowOpened
from mirrord.ledger.state import FlowState


def check_clusters(state: FlowState, opened: FlowOpened) -> None:
    """Raise ForeignFlow if the ledger belongs to different clusters. An empty ledger belongs to no cluster."""
    if state.flow and (state.source_cluster, state.target_cluster) != (opened.source_cluster, opened.target_cluster):
        raise ForeignFlow(
            f"the flow name {opened.flow} is taken: its ledger copies cluster {state.source_cluster} to"
            f" {state.target_cluster}, not {opened.source_cluster} to {opened.target_cluster}; choose a different name"
        )
