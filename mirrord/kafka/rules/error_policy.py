"""Defines how a lane reacts to each Kafka error code. The table `FETCHED` is for the source's fetch responses, and the
table `PRODUCED` is for the target's produce responses.

The codes are those of org.apache.kafka.common.protocol.Errors. If `PRODUCED` does not contain a code, the code counts
as a refusal of the batch. If `FETCHED` does not contain a code, the lane halts. A lane must not guess the meaning of an
unknown code.
"""

from enum import Enum

NONE = 0
NETWORK = 13
"""NETWORK_EXCEPTION. No broker sends this code. `LaneHost` reports it if a connection is lost before the answer to a
request arrives. The outcome of the request is then unknown."""


class Produced(Enum):
    """How a lane reacts to a produce response."""

    DONE = "done"
    DOUBT = "doubt"
    """The batch was refused and not appended, and the reason may be temporary. The lane waits until all its in-flight
    batches have been answered, and then resumes."""
    UNKNOWN = "unknown"
    """The batch may have been appended, or may still be appended. The lane does the same as for DOUBT. In addition, it
    takes into account that batches that have already been sent may still reach the target log."""
    REFUSED = "refused"
    """The target will never accept these bytes. Only this lane halts."""
    DENIED = "denied"
    """mirrord lacks a permission, or the target does not accept its credentials. The lane retries at long intervals,
    because an operator can correct the problem in the meantime."""


PRODUCED: dict[int, Produced] = {
    0: Produced.DONE,
    -1: Produced.UNKNOWN,  # UNKNOWN_SERVER_ERROR
    2: Produced.REFUSED,  # CORRUPT_MESSAGE: the records do not match the source's checksum
    3: Produced.DOUBT,  # UNKNOWN_TOPIC_OR_PARTITION: the topic is being created, or was deleted
    5: Produced.DOUBT,  # LEADER_NOT_AVAILABLE
    6: Produced.DOUBT,  # NOT_LEADER_OR_FOLLOWER
    7: Produced.UNKNOWN,  # REQUEST_TIMED_OUT: appended, but not replicated in time
    9: Produced.DOUBT,  # REPLICA_NOT_AVAILABLE
    10: Produced.REFUSED,  # MESSAGE_TOO_LARGE
    13: Produced.UNKNOWN,  # NETWORK_EXCEPTION: reported by `LaneHost`, see above
    17: Produced.REFUSED,  # INVALID_TOPIC_EXCEPTION
    18: Produced.REFUSED,  # RECORD_LIST_TOO_LARGE
    19: Produced.DOUBT,  # NOT_ENOUGH_REPLICAS: checked before the append
    20: Produced.UNKNOWN,  # NOT_ENOUGH_REPLICAS_AFTER_APPEND
    21: Produced.REFUSED,  # INVALID_REQUIRED_ACKS
    22: Produced.DOUBT,  # ILLEGAL_GENERATION: only for group members; nothing was appended
    29: Produced.DENIED,  # TOPIC_AUTHORIZATION_FAILED
    31: Produced.DENIED,  # CLUSTER_AUTHORIZATION_FAILED
    32: Produced.REFUSED,  # INVALID_TIMESTAMP
    35: Produced.REFUSED,  # UNSUPPORTED_VERSION
    42: Produced.REFUSED,  # INVALID_REQUEST
    43: Produced.REFUSED,  # UNSUPPORTED_FOR_MESSAGE_FORMAT
    44: Produced.REFUSED,  # POLICY_VIOLATION
    45: Produced.DOUBT,  # OUT_OF_ORDER_SEQUENCE_NUMBER: another writer was faster, or a batch is missing
    46: Produced.DOUBT,  # DUPLICATE_SEQUENCE_NUMBER: older brokers; the repeated batch is not among the last five
    47: Produced.REFUSED,  # INVALID_PRODUCER_EPOCH: another client uses the lane's producer id with a newer epoch
    48: Produced.REFUSED,  # INVALID_TXN_STATE
    49: Produced.REFUSED,  # INVALID_PRODUCER_ID_MAPPING
    51: Produced.DOUBT,  # CONCURRENT_TRANSACTIONS
    53: Produced.REFUSED,  # TRANSACTIONAL_ID_AUTHORIZATION_FAILED: the transactional bit without a transactional id
    56: Produced.UNKNOWN,  # KAFKA_STORAGE_ERROR: a disk is full or gone; another disk may have part of the data
    58: Produced.DENIED,  # SASL_AUTHENTICATION_FAILED
    59: Produced.DOUBT,  # UNKNOWN_PRODUCER_ID: brokers before 2.4; the producer state is gone
    72: Produced.DOUBT,  # LISTENER_NOT_FOUND
    74: Produced.DOUBT,  # FENCED_LEADER_EPOCH
    75: Produced.DOUBT,  # UNKNOWN_LEADER_EPOCH
    76: Produced.REFUSED,  # UNSUPPORTED_COMPRESSION_TYPE
    87: Produced.REFUSED,  # INVALID_RECORD
    89: Produced.DOUBT,  # THROTTLING_QUOTA_EXCEEDED
    90: Produced.REFUSED,  # PRODUCER_FENCED
    100: Produced.DOUBT,  # UNKNOWN_TOPIC_ID: the topic is being created, or was deleted; `LaneHost` finds out which
    103: Produced.DOUBT,  # INCONSISTENT_TOPIC_ID
    120: Produced.REFUSED,  # TRANSACTION_ABORTABLE
}


class Fetched(Enum):
    """The reaction of a lane to the answer to a fetch request."""

    TAKE = "take"
    AGAIN = "again"
    """The error is temporary. The lane looks up the leader and fetches again."""
    RANGE = "range"
    """The requested offset is outside the source's log."""
    DENIED = "denied"
    HALT = "halt"


FETCHED: dict[int, Fetched] = {
    0: Fetched.TAKE,
    -1: Fetched.AGAIN,  # UNKNOWN_SERVER_ERROR
    1: Fetched.RANGE,  # OFFSET_OUT_OF_RANGE
    2: Fetched.HALT,  # CORRUPT_MESSAGE: the source cannot read its own log
    3: Fetched.AGAIN,  # UNKNOWN_TOPIC_OR_PARTITION
    5: Fetched.AGAIN,  # LEADER_NOT_AVAILABLE
    6: Fetched.AGAIN,  # NOT_LEADER_OR_FOLLOWER
    7: Fetched.AGAIN,  # REQUEST_TIMED_OUT
    9: Fetched.AGAIN,  # REPLICA_NOT_AVAILABLE
    13: Fetched.AGAIN,  # NETWORK_EXCEPTION: reported by `LaneHost`, see above
    17: Fetched.HALT,  # INVALID_TOPIC_EXCEPTION
    29: Fetched.DENIED,  # TOPIC_AUTHORIZATION_FAILED
    31: Fetched.DENIED,  # CLUSTER_AUTHORIZATION_FAILED
    35: Fetched.HALT,  # UNSUPPORTED_VERSION
    42: Fetched.HALT,  # INVALID_REQUEST
    56: Fetched.AGAIN,  # KAFKA_STORAGE_ERROR
    58: Fetched.DENIED,  # SASL_AUTHENTICATION_FAILED
    70: Fetched.AGAIN,  # FETCH_SESSION_ID_NOT_FOUND
    71: Fetched.AGAIN,  # INVALID_FETCH_SESSION_EPOCH
    72: Fetched.AGAIN,  # LISTENER_NOT_FOUND
    74: Fetched.AGAIN,  # FENCED_LEADER_EPOCH
    75: Fetched.AGAIN,  # UNKNOWN_LEADER_EPOCH
    76: Fetched.HALT,  # UNSUPPORTED_COMPRESSION_TYPE
    78: Fetched.AGAIN,  # OFFSET_NOT_AVAILABLE: a new leader does not know the high watermark yet
    89: Fetched.AGAIN,  # THROTTLING_QUOTA_EXCEEDED
    100: Fetched.AGAIN,  # UNKNOWN_TOPIC_ID
    103: Fetched.AGAIN,  # INCONSISTENT_TOPIC_ID
    106: Fetched.AGAIN,  # FETCH_SESSION_TOPIC_ID_ERROR
    109: Fetched.HALT,  # OFFSET_MOVED_TO_TIERED_STORAGE: for followers only
}


def produced(error: int) -> Produced:
    """Return the reaction to the error code in the answer to a produce request. An unlisted code counts as a
    refusal."""
    return PRODUCED.get(error, Produced.REFUSED)


def fetched(error: int) -> Fetched:
    """Return the reaction to the error code in the answer to a fetch request. An unlisted code halts the lane."""
    return FETCHED.get(error, Fetched.HALT)
