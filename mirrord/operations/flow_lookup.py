"""Finds the flows to which the name of a partition may refer, and reads their ledgers."""

from collections.abc import Iterable

import msgspec

from mirrord.config.schema import Config
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, MirrordError
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers


async def ledgers_meant(
    config: Config, name: str, flow: str | None
) -> tuple[str, dict[str, LedgerView | MirrordError]]:
    """Return the name without its flow prefix, and the ledgers of the flows to which the name may refer.

    The flow is given in the name (`FLOW:NAME`) or by the argument `flow`. If neither is given, the ledgers of all flows
    are read. Raises ConfigError if the flow does not exist, or if the name and the argument contradict each other.
    """
    prefix, _, name = name.rpartition(":")
    for chosen in filter(None, (flow, prefix)):
        config = msgspec.structs.replace(config, flows=(config.flow(chosen),))
    return name, await read_ledgers(config, ClusterAccess(config, PATIENCE_S))


def of_several(name: str, flows: Iterable[str]) -> ConfigError:
    """Return an error that says that a name exists in several flows and that the user has to choose one."""
    return ConfigError(f'"{name}" is ambiguous: it may belong to {" or ".join(sorted(flows))}; choose with --flow')
