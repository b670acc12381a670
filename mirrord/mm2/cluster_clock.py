"""Reads the time of a cluster from its active controller, with the request in `mirrord.kafka.protocol.quorum`.

Only the controller reports its time. The clocks of the other brokers are assumed to agree with the controller's clock.
"""

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import Asker, NotOffered
from mirrord.kafka.protocol.api_versions import DESCRIBE_QUORUM
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.protocol.quorum import QuorumTime, decode_describe_quorum, encode_describe_quorum
from mirrord.mm2.rules.heartbeat_latency import ClockEstimate, ClockSample, clock_sample
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias
from mirrord.runtime.clock import Clock


class ClusterClock:
    """Estimates how far the clock of one cluster is ahead of this machine's clock."""

    def __init__(self, alias: Alias, config: ClusterConfig, timeout_s: float, clock: Clock) -> None:
        self.why_unknown = ""
        """One line for operators that says why the cluster's time is unknown. Empty if the time is known."""
        self._alias = alias
        self._asker = Asker(config, timeout_s)
        self._clock = clock
        self._estimate = ClockEstimate()

    @property
    def ahead(self) -> ClockSample | None:
        """How far the cluster's clock is ahead of this machine's clock. None if the difference is unknown."""
        return self._estimate.best

    async def measure(self) -> None:
        """Ask the controller for its time and update the estimate."""
        asked_ms: list[int] = []

        def encode(_: int) -> bytes:
            asked_ms.append(self._clock.wall_ms())  # the connection is already open, so connecting is not measured
            return encode_describe_quorum()

        def decode(_: int, reader: Reader) -> tuple[QuorumTime, int]:
            return decode_describe_quorum(reader), self._clock.wall_ms()

        sample = None
        try:
            answer, answered_ms = await self._asker.ask(DESCRIBE_QUORUM, encode, decode)
        except NotOffered:
            self.why_unknown = f"the brokers of {self._alias} do not report the time (they need Kafka 3.3 with KRaft)"
        except EnvironmentFault as fault:
            self.why_unknown = f"the clock of {self._alias} is not known: {fault}"
        else:
            if answer.now_ms is not None:
                sample = clock_sample(asked_ms[-1], answer.now_ms, answered_ms)
                self.why_unknown = ""
            else:
                need = "; DESCRIBE on the cluster is missing" if answer.error else ""
                self.why_unknown = f"the clock of {self._alias} is not known: {ErrorCode.name_of(answer.error)}{need}"
        self._estimate.add(sample)

    def close(self) -> None:
        """Close the connection."""
        self._asker.close()
