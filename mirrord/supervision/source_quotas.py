"""Reads the client quotas of a flow's source cluster and records them, so that `mirrord ready` can compare them with
those of the target when the source is gone. They are not synced."""

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import RequestRefused, UpkeepAdmin
from mirrord.ledger.last_seen.quotas import quota_records
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.errors import EnvironmentFault
from mirrord.model.quotas import ClientQuota
from mirrord.runtime.clock import Clock

EVERY_S = 60.0
"""Minimum time, in seconds, between two requests for the client quotas."""

log = structlog.get_logger()


class SourceQuotas:
    """Records the client quotas of one flow's source."""

    def __init__(self, flow: FlowConfig, source: UpkeepAdmin, clock: Clock) -> None:
        self._flow = flow
        self._source = source
        self._clock = clock
        self._due_s = 0.0

    async def round(self, recorder: Recorder) -> None:
        """Read and record the client quotas, unless that was done less than `EVERY_S` seconds ago.

        If the source refuses the request or does not support it, the reason is recorded instead. If it does not answer,
        nothing is recorded. Raises nothing that concerns the source.
        """
        if self._clock.monotonic() < self._due_s:
            return
        self._due_s = self._clock.monotonic() + EVERY_S
        now_ms = self._clock.wall_ms()
        quotas, refused = frozenset[ClientQuota](), ""
        try:
            quotas = await self._source.quotas()
        except (NotOffered, RequestRefused) as fault:
            refused = f"those of {self._flow.source} cannot be read: {fault}"
        except EnvironmentFault:
            return  # the sync of configs reports that the source does not answer
        except Exception as error:
            log.error("quotas_not_read", flow=self._flow.name, exc_info=error)
            return
        state = recorder.state
        await recorder.save(quota_records(state, quotas, refused, state.lease_epoch, now_ms))
