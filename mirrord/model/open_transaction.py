"""The open transaction that a lane waits for, in the form that operators receive."""

import msgspec


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction on the source that has not ended. Until it ends, a lane cannot copy the transaction's first record
    or any record after it."""

    first_offset: int
    """Offset of the transaction's first record in the source partition. Records from this offset on are not copied
    until the transaction ends."""
    since_ms: int
    """Time at which mirrord first observed that the source's last stable offset is `first_offset`. The last stable
    offset has not advanced since then."""
    producer_id: int = -1
    """Producer id of the transaction, or -1 if the source does not report it."""
    producer_epoch: int = -1
    transactional_id: str = ""
    """Transactional id of the producer. Empty if no transaction coordinator reports it, for example because mirrord
    lacks the permission to DESCRIBE the transactional id."""
    state: str = ""
    """State of the transaction as its coordinator reports it, such as Ongoing."""
    last_record_ms: int = -1
    """Timestamp of the newest record that the transaction's producer wrote to the source partition, or -1 if it is
    unknown."""
    trouble: str = ""
    """One line for operators that says why the transaction's producer is unknown."""

    @property
    def line(self) -> str:
        """Description of the transaction and its producer, for operators."""
        if self.producer_id < 0:
            return f"a transaction that began at offset {self.first_offset}, whose producer is not known{self._why}"
        name = f', transactional id "{self.transactional_id}"' if self.transactional_id else ""
        return (
            f"the transaction of producer {self.producer_id} epoch {self.producer_epoch}{name}, "
            f"which began at offset {self.first_offset}"
        )

    @property
    def _why(self) -> str:
        return f" ({self.trouble})" if self.trouble else ""
