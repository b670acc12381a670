"""The client's side of a fetch session (KIP-227). In a session, the broker remembers the requested partitions, so that
a request contains only the changes.

The broker keeps the position of each partition until the client sends a new position. After the broker has delivered
data, the client must advance the position or remove the partition from the session. Otherwise the broker sends the same
data again.

`next_step` receives all partitions that are currently wanted, and computes the changes. Only one request of a session
may be in flight at a time. The module follows FetchSessionHandler in org.apache.kafka.clients and FetchSession in
kafka.server.
"""

from collections.abc import Mapping

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch import FetchPosition, FetchResponse, SessionStep
from mirrord.kafka.protocol.primitives import TopicAndPartition

NO_SESSION = 0
FULL = 0
"""The epoch of a request that opens a session and lists all partitions."""
LAST_EPOCH = 2**31 - 1


class FetchSession:
    """A fetch session on one connection. A new connection needs a new session.

    If a response reports an error for the whole request, the next request lists all partitions again. If the broker
    still holds the old session, that request also closes it.
    """

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._known: dict[TopicAndPartition, FetchPosition] = {}

    @property
    def open(self) -> bool:
        """Whether the broker keeps a session. If it does, the next request contains only the changes."""
        return self._epoch != FULL

    def knows(self, key: TopicAndPartition) -> bool:
        """Return whether the broker's session includes this partition. If it does, a response contains the partition
        only if there are records to return or the partition's state has changed."""
        return self._epoch != FULL and key in self._known

    def next_step(self, wanted: Mapping[TopicAndPartition, FetchPosition]) -> SessionStep:
        """Return the session fields of the next request, which then fetches exactly these partitions at these
        positions."""
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
        """Process the response to the latest request. Return False if the response reports an error for the whole
        request. Such a response contains no data.

        Any such error ends the session, and the next request lists all partitions. Three of these errors concern the
        session itself: FETCH_SESSION_ID_NOT_FOUND (the broker has evicted the session), INVALID_FETCH_SESSION_EPOCH and
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if response.error != 0:
            # A request with the old session's id and epoch 0 opens a new session and closes the old one. If the broker
            # does not know the old id, the id is not sent.
            if response.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = FULL
            return False
        if response.session_id == NO_SESSION:
            # The broker's session cache is full, or the session has no partitions left. There is no session, and each
            # request is independent.
            self._id = NO_SESSION
            self._epoch = FULL
            return True
        self._id = response.session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True
