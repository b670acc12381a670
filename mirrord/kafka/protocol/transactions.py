"""Encodes and decodes ListTransactions (API 66, version 0; KIP-664) and EndTxn (API 26, version 3).

ListTransactions finds the transactional id that belongs to a producer id. A coordinator lists only the transactions
that it coordinates, so every broker must be asked. A coordinator silently omits transactions that the client is not
allowed to DESCRIBE.

EndTxn is used only to test whether this client may write with a transactional id. It ends no transaction.
"""

import msgspec

from mirrord.kafka.protocol.primitives import INT16, INT64, NO_TAGS, Reader, compact_array, compact_string

_ABORT = b"\0"


class ListedTransaction(msgspec.Struct, frozen=True):
    """A transactional id with its producer id and the state of its transaction, as its coordinator lists them."""

    transactional_id: str
    producer_id: int
    state: str
    """The state of the transaction, such as Ongoing, PrepareAbort or CompleteCommit
    (org.apache.kafka.coordinator.transaction.TransactionState)."""


class ListedTransactions(msgspec.Struct, frozen=True):
    """The response of one broker to a ListTransactions request."""

    error: int
    transactions: list[ListedTransaction]


def encode_list_transactions(producer_ids: list[int]) -> bytes:
    """Encode the body of a ListTransactions request for the transactions of these producers, in any state."""
    return compact_array(()) + compact_array(map(INT64.pack, producer_ids)) + NO_TAGS


def decode_list_transactions(reader: Reader) -> ListedTransactions:
    """Decode a ListTransactions response. Raises WireError."""
    reader.int32()  # throttle time
    error = reader.int16()
    reader.compact_array(Reader.compact_string)  # filters that the broker does not know
    answer = ListedTransactions(error, reader.compact_array(_transaction))
    reader.skip_tags()
    reader.expect_end()
    return answer


def encode_end_txn(transactional_id: str) -> bytes:
    """Encode the body of an EndTxn request that tests whether the client may write with this transactional id.

    The request asks the broker to abort a transaction, but it contains a producer id that does not exist. The broker
    first checks the permission and returns TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the client does not have it.
    Otherwise the broker returns a different error. In both cases, nothing changes.
    """
    return compact_string(transactional_id) + INT64.pack(-1) + INT16.pack(-1) + _ABORT + NO_TAGS


def decode_end_txn(reader: Reader) -> int:
    """Return the error code of an EndTxn response. Raises WireError."""
    reader.int32()  # throttle time
    error = reader.int16()
    reader.skip_tags()
    reader.expect_end()
    return error


def _transaction(reader: Reader) -> ListedTransaction:
    transaction = ListedTransaction(reader.compact_string(), reader.int64(), reader.compact_string())
    reader.skip_tags()
    return transaction
