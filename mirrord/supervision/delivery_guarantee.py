"""Determines whether lanes can copy exactly once to a flow's target brokers, with a new probe or the result of an
earlier one."""

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
    """The mode in which the lanes of one flow work with the target's brokers."""

    def __init__(self, probe: Probe) -> None:
        """`probe` probes the target's brokers. It is given the result of an earlier probe, if there is one, and raises
        NotProbed."""
        self._probe = probe
        self._not_probed = ""

    async def find(self, flow: FlowConfig, store: LedgerStore, epoch: int) -> Mode:
        """Return the mode for the current brokers, and record the result of a new probe in the ledger."""
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
        """Return what the flow guarantees about each record, and one line that says why it is not more, or why it is
        uncertain. Without the state of a ledger, nothing is known."""
        return (None, "") if state is None else guarantee(state.probed, self._not_probed)
