"""Orders that one record of a ledger is skipped, because it cannot be read.

Such a record stops every daemon of the flow. No daemon can therefore take the order, so it is appended to the ledger
topic directly. Daemons that are waiting find it when they read the ledger again.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Literal

from mirrord.ledger.codec import decode_entry, encode_entry
from mirrord.ledger.errors import LedgerCorrupt, NotOurs, NotSigned, SignedLedger, TooNew
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import RecordSkipped
from mirrord.ledger.facts.core import Entry
from mirrord.ledger.fold import writer_text
from mirrord.ledger.store.entry_gate import orders_in
from mirrord.ledger.store.log_interface import LedgerLog, LedgerRow
from mirrord.model.errors import ConfigError

Outcome = Literal["ordered", "already ordered"]


async def order_skip(log: LedgerLog, offset: int, origin: Origin) -> Outcome:
    """Append the order to skip the record at one offset of a ledger. Raises EnvironmentFault. Raises ConfigError if
    the record does not have to be skipped, or must not be."""
    await log.open(create=False)
    try:
        rows = await _read_from(log, offset)
        where = f"--offset: the record at offset {offset} of {log.topic}"
        check_unreadable(lambda: decode_entry(log.seal.entry(rows[0].value)), where)
        if any(offset in orders_in(row, log.seal) for row in rows):
            return "already ordered"
        entry = Entry(0, origin.at_ms, (RecordSkipped(offset, origin),), writer_text(secrets.token_hex(6), 1))
        await log.append([encode_entry(entry)])
        return "ordered"
    finally:
        await log.close()


async def _read_from(log: LedgerLog, offset: int) -> Sequence[LedgerRow]:
    ends = await log.ends()
    if not ends.start <= offset < ends.end:
        held = f"the offsets {ends.start} to {ends.end - 1}" if ends.start < ends.end else "no records"
        raise ConfigError(f"--offset: {log.topic} has no offset {offset}; it has {held}")
    log.seek(offset)
    rows: list[LedgerRow] = []
    while not rows or rows[-1].offset < ends.end - 1:
        rows += [row for row in await log.read() if isinstance(row, LedgerRow)]
    return rows


def check_unreadable(read: Callable[[], object], where: str, *refused: type[LedgerCorrupt]) -> None:
    """Raise ConfigError if `read` can read the record, or if the record must not be skipped. `where` names the record.
    Errors of the classes `refused` also mean that it must not be skipped."""
    try:
        read()
    except (NotSigned, SignedLedger, *refused) as error:
        raise ConfigError(f"{where} must not be skipped: {error}") from None
    except NotOurs:
        raise ConfigError(f"{where} was not written by mirrord: all readers skip it without an order") from None
    except TooNew as error:
        raise ConfigError(f"{where} must not be skipped: {error}; start the newer version") from None
    except LedgerCorrupt:
        return
    raise ConfigError(f"{where} can be read; only records that cannot be read may be skipped")
