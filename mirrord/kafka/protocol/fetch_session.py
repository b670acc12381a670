"""A fetch session (KIP-227): the broker remembers the requested partitions, so a request contains only what has
changed.

The broker keeps the position of each partition until it receives another one. Once it has delivered data, the position
must be advanced or the partition forgotten. Otherwise the broker sends the same data again. `next_step` receives *all*
partitions that are currently wanted and computes the difference. Only one request of a session may be in flight at a
time. The module follows FetchSessionHandler in org.apache.kafka.clients and FetchSession in kafka.server.
"""

from collections.abc import Mapping

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch import FetchPosition, FetchResponse, SessionStep
from mirrord.kafka.protocol.primitives import TopicAndPartition

NO_SESSION = 0
FULL = 0
"""The epoch of a request that opens a session and names all partitions."""
LAST_EPOCH = 2**31 - 1


class FetchSession:
    """The client's side of a session on one connection. A new connection needs a new session.

    After any error, the next request names all partitions again. This also makes the broker drop a session that it may
    still hold.
    """

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._known: dict[TopicAndPartition, FetchPosition] = {}

    @property
    def open(self) -> bool:
        """Whether the broker keeps a session, so that the next step contains only the difference."""
        return self._epoch != FULL

    def knows(self, key: TopicAndPartition) -> bool:
        """Return whether the broker's session includes this partition. If so, the broker reports it again only when
        something about it has changed."""
        return self._epoch != FULL and key in self._known

    def next_step(self, wanted: Mapping[TopicAndPartition, FetchPosition]) -> SessionStep:
        """Return the session fields of the next request, for exactly these partitions and positions."""
        known = self._known
        if self._epoch == FULL:
            step = SessionStep(self._id, FULL, list(wanted.items()), ())
        else:
            changed = [(key, position) for key, position in wanted.items() if known.get(key) != position]
            gone = [key for key in known if key not in wanted]
            step = SessionStep(self._id, self._epoch, changed, gone)
        self._known = dict(wanted)
        return step

    def answered(self, response: FetchResponse) -> bool:
        """Process the response to the last step. Return False if the session is lost; the response then contains no
        data.

        FETCH_SESSION_ID_NOT_FOUND (the broker evicted the session), INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR and any other error of the whole request make the next request a full one.
        """
        if response.error != 0:
            # A full request with the old session's id and epoch 0 also closes that session. An id that the broker does
            # not know is not sent.
            if response.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = FULL
            return False
        if response.session_id == NO_SESSION:
            # The broker's session cache is full, or the session has no partitions left: each request is independent of
            # the others.
            self._id = NO_SESSION
            self._epoch = FULL
            return True
        self._id = response.session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True
