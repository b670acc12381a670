"""Determines whether lanes can copy records exactly once to a flow's target brokers, by probing the brokers with
`mirrord.supervision.broker_probe`. The ledger keeps the result, so a new probe is needed only after the brokers have
changed."""

from collections.abc import Awaitable, Callable

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.ledger.facts.core import Mode, TargetProbed
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.status import Guarantee
from mirrord.supervision.broker_probe import NotProbed
from mirrord.supervision.rules.broker_probe import guarantee, mode

Probe = Callable[[FlowConfig, TargetProbed | None], Awaitable[TargetProbed]]

log = structlog.get_logger()


class TargetMode:
    """Determines how the lanes of one flow avoid writing a record twice (the `Mode`) and which delivery guarantee
    follows from that."""

    def __init__(self, probe: Probe) -> None:
        """Store `probe`, the function that probes the target's brokers. It takes the result of an earlier probe, or
        None, and may raise NotProbed."""
        self._probe = probe
        self._not_probed = ""

    async def find(self, flow: FlowConfig, store: LedgerStore, epoch: int) -> Mode:
        """Return the mode in which lanes write to the current brokers. If a new probe was needed, record its result in
        the ledger."""
        known = store.state.probed
        self._not_probed = ""
        try:
            probed = await self._probe(flow, known)
        except NotProbed as fault:
            self._not_probed = str(fault)
            log.warning("target_not_probed", flow=flow.name, reason=self._not_probed)
            return mode(known)
        if not probed.passed:
            log.error("target_fails_probe", flow=flow.name, guarantee="at-least-once", failures=probed.failures)
        if probed != known:
            await store.append(epoch, [probed])
        return mode(probed)

    def promise(self, state: FlowState | None) -> tuple[Guarantee | None, str]:
        """Return the flow's delivery guarantee, and one line that explains a weaker or uncertain guarantee. If the
        state of the ledger is not known, the guarantee is None."""
        return (None, "") if state is None else guarantee(state.probed, self._not_probed)
