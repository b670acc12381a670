"""The flows that somebody means who names a partition, with what their ledgers say."""

from collections.abc import Iterable

import msgspec

from mirrord.model.config import Config
from mirrord.model.errors import ConfigError, MirrordError
from mirrord.shell.cluster_access import ClusterAccess
from mirrord.shell.observe import PATIENCE_S, LedgerView, read_ledgers


async def ledgers_meant(
    config: Config, name: str, flow: str | None
) -> tuple[str, dict[str, LedgerView | MirrordError]]:
    """The name without its flow, and the ledgers of that flow (`FLOW:NAME`), of the one named beside it, or of all.

    Raises ConfigError for a flow that is not there, and where those are two.
    """
    prefix, _, name = name.rpartition(":")
    for chosen in filter(None, (flow, prefix)):
        config = msgspec.structs.replace(config, flows=(config.flow(chosen),))
    return name, await read_ledgers(config, ClusterAccess(config, PATIENCE_S))


def of_several(name: str, flows: Iterable[str]) -> ConfigError:
    """Nothing is guessed."""
    return ConfigError(f'"{name}" may mean that of {" or ".join(sorted(flows))}; choose with --flow')
