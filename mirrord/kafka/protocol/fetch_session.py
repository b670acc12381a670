"""A fetch session (KIP-227): what the broker knows of our wishes, so that a request tells only what changed.

The broker keeps each partition's position until it is told another one. A position whose data were delivered must
therefore be moved on or forgotten, or the same data come again: `next_step` is given *all* that is wanted now, and
finds out the difference. One request of a session may be under way at a time. Models: FetchSessionHandler in
org.apache.kafka.clients, FetchSession in kafka.server.
"""

from collections.abc import Mapping

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch import FetchResponse, Position, SessionStep, TopicPartition

NO_SESSION = 0
FULL = 0
"""The epoch of a request that opens a session and names all partitions."""
LAST_EPOCH = 2**31 - 1


class FetchSession:
    """The client's side of a session on one connection; a new connection needs a new one.

    Whatever goes wrong, the next step is a full request again, which also makes the broker drop the session that it may
    still hold.
    """

    __slots__ = ("_epoch", "_id", "_known")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL
        self._known: dict[TopicPartition, Position] = {}

    @property
    def open(self) -> bool:
        """The broker keeps a session, and the next step tells only the difference."""
        return self._epoch != FULL

    def knows(self, key: TopicPartition) -> bool:
        """The last request named this partition: what the broker told of it then it does not tell again."""
        return self._epoch != FULL and key in self._known

    def next_step(self, wanted: Mapping[TopicPartition, Position]) -> SessionStep:
        """The next request's session fields, for exactly these partitions and positions."""
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
        """Take in the answer to the last step. False when the session is lost: nothing in the answer is of use then.

        FETCH_SESSION_ID_NOT_FOUND (the broker evicted it), INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR
        and any other error of the whole request lead back to a full one.
        """
        if response.error != 0:
            # With its id and epoch 0 the broker closes the old session in the same stroke; an unknown id is not told.
            if response.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._id = NO_SESSION
            self._epoch = FULL
            return False
        if response.session_id == NO_SESSION:
            # The broker's cache is full, or nothing is left in the session: each request stands for itself.
            self._id = NO_SESSION
            self._epoch = FULL
            return True
        self._id = response.session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1
        return True
