"""ListTransactions (API 66, version 0; KIP-664): which transactional id a producer id belongs to.

A coordinator tells of the transactions that it coordinates itself, so that all brokers have to be asked. It leaves out
what one has no right to DESCRIBE, without a word.
"""

import msgspec

from mirrord.wire.primitives import INT64, NO_TAGS, Reader, compact_array


class ListedTransaction(msgspec.Struct, frozen=True):
    """What a coordinator knows of a transactional id."""

    transactional_id: str
    producer_id: int
    state: str
    """Such as Ongoing, PrepareAbort, CompleteCommit (org.apache.kafka.coordinator.transaction.TransactionState)."""


class ListedTransactions(msgspec.Struct, frozen=True):
    """One broker's answer."""

    error: int
    transactions: list[ListedTransaction]


def encode_list_transactions(producer_ids: list[int]) -> bytes:
    """The body of a request about the transactions of these producers, in whatever state."""
    return compact_array(()) + compact_array(map(INT64.pack, producer_ids)) + NO_TAGS


def decode_list_transactions(reader: Reader) -> ListedTransactions:
    """The answer in a frame. Raises WireError."""
    reader.int32()  # throttle time
    error = reader.int16()
    reader.compact_array(Reader.compact_string)  # filters that the broker does not know
    answer = ListedTransactions(error, reader.compact_array(_transaction))
    reader.skip_tags()
    reader.expect_end()
    return answer


def _transaction(reader: Reader) -> ListedTransaction:
    transaction = ListedTransaction(reader.compact_string(), reader.int64(), reader.compact_string())
    reader.skip_tags()
    return transaction
