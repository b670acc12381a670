"""Finds the flows that a user may mean by the name of a partition, and reads their ledgers."""

from collections.abc import Iterable

import msgspec

from mirrord.config.schema import Config
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, MirrordError
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers


async def ledgers_meant(
    config: Config, name: str, flow: str | None
) -> tuple[str, dict[str, LedgerView | MirrordError]]:
    """Return the name without its flow, and the ledgers of the flows that it may belong to.

    The flow is the one in the name (`FLOW:NAME`), or the one that is passed in addition to the name. If neither is
    given, the ledgers of all flows are read. Raises ConfigError for a flow that does not exist, and if the two flows
    differ.
    """
    prefix, _, name = name.rpartition(":")
    for chosen in filter(None, (flow, prefix)):
        config = msgspec.structs.replace(config, flows=(config.flow(chosen),))
    return name, await read_ledgers(config, ClusterAccess(config, PATIENCE_S))


def of_several(name: str, flows: Iterable[str]) -> ConfigError:
    """Return the error for a name that exists in several flows. mirrord does not guess which flow is meant."""
    return ConfigError(f'"{name}" is ambiguous: it may belong to {" or ".join(sorted(flows))}; choose with --flow')
