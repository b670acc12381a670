"""What time it is at a cluster, by the word of its active controller (`mirrord.wire.quorum`).

Only the controller tells; its brokers' clocks are taken to agree with it, as Kafka itself expects of them.
"""

from mirrord.cluster.beats import ClockEstimate, ClockSample, clock_sample
from mirrord.model.config import ClusterConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias
from mirrord.shell.clock import Clock
from mirrord.shell.requests import Asker, NotOffered
from mirrord.wire.apis import DESCRIBE_QUORUM
from mirrord.wire.errors import ErrorCode
from mirrord.wire.primitives import Reader
from mirrord.wire.quorum import QuorumTime, decode_describe_quorum, encode_describe_quorum


class ClusterClock:
    """The clock of one cluster, compared with ours."""

    def __init__(self, alias: Alias, config: ClusterConfig, timeout_s: float, clock: Clock) -> None:
        self.why_unknown = ""
        """One line for people."""
        self._alias = alias
        self._asker = Asker(config, timeout_s)
        self._clock = clock
        self._estimate = ClockEstimate()

    @property
    def ahead(self) -> ClockSample | None:
        """How far it is ahead of ours; None when that is not known."""
        return self._estimate.best

    async def look(self) -> None:
        """Ask once more."""
        asked_ms: list[int] = []

        def encode(_: int) -> bytes:
            asked_ms.append(self._clock.wall_ms())  # a connection is there by now, so only the question itself counts
            return encode_describe_quorum()

        def decode(_: int, reader: Reader) -> tuple[QuorumTime, int]:
            return decode_describe_quorum(reader), self._clock.wall_ms()

        sample = None
        try:
            told, answered_ms = await self._asker.ask(DESCRIBE_QUORUM, encode, decode)
        except NotOffered:
            self.why_unknown = f"the brokers of {self._alias} do not tell the time (they need Kafka 3.3 with KRaft)"
        except EnvironmentFault as fault:
            self.why_unknown = f"the clock of {self._alias} is not known: {fault}"
        else:
            if told.now_ms is not None:
                sample = clock_sample(asked_ms[-1], told.now_ms, answered_ms)
                self.why_unknown = ""
            else:
                need = "; DESCRIBE on the cluster is missing" if told.error else ""
                self.why_unknown = f"the clock of {self._alias} is not known: {ErrorCode.name_of(told.error)}{need}"
        self._estimate.add(sample)

    def close(self) -> None:
        """End the connection."""
        self._asker.close()
