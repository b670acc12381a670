"""Replaces one record of the state topic that cannot be read, so that it is no longer in force.

Only the newest record of each key counts in the state topic. The record is therefore replaced, and readers need no
order. If facts would be missing without the record, it is not replaced, so that no flow continues from a wrong state.
To find out, the command opens the ledger as readers would find it.
"""

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from mirrord.ledger.codec import decode_state, encode_entry
from mirrord.ledger.errors import LOST, LedgerCorrupt, NotOurs, SignedLedger, TooNew, UnknownKey
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import StateRecordSkipped
from mirrord.ledger.facts.core import Entry
from mirrord.ledger.fold import writer_text
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import (
    LEDGER_END_KEY,
    PROGRESS_PREFIX,
    SNAPSHOT_KINDS,
    FlowSnapshot,
    StateRecord,
    kind_of,
)
from mirrord.ledger.store.log_interface import LedgerLog, LogEnds, StateRow
from mirrord.ledger.store.seal import Seal
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.operations.ledger_skip import check_unreadable
from mirrord.runtime.clock import SystemClock


class _Replacement(NamedTuple):
    """A way to take the record out of force."""

    rows: tuple[StateRow, ...]
    """What is written to the state topic."""
    replaced: frozenset[int]
    """The offsets of the records that no longer count then."""
    remark: str


async def order_state_skip(open_log: Callable[[], LedgerLog], offset: int, origin: Origin) -> str:
    """Replace the record at one offset of the state topic, and return one line that says what was done. Raises
    EnvironmentFault. Raises ConfigError if the record does not have to be skipped, or must not be."""
    log = open_log()
    await log.open(create=False)
    try:
        ends = await log.ends()
        rows = [row async for row in log.load_state()]
        named = f"the record at offset {offset} of {log.state_topic}"
        row = next((row for row in rows if row.offset == offset), None)
        if row is None:
            raise ConfigError(f"--offset: {log.state_topic} has no record at offset {offset}")
        check_unreadable(lambda: _read(log.seal, row), f"--offset: {named}", UnknownKey)
        if any(later.key == row.key and later.offset > offset and _counts(log.seal, later) for later in rows):
            return f"nothing to do: a newer record has replaced {named}"
        chosen = await _choose(open_log, log.seal, rows, row, ends)
        if (await log.ends()).state_end != ends.state_end:
            raise EnvironmentFault(f"another process is writing to {log.state_topic}: try again")
        fact = StateRecordSkipped(offset, row.key, origin)
        await log.append([encode_entry(Entry(0, origin.at_ms, (fact,), writer_text(secrets.token_hex(6), 1)))])
        await log.save(chosen.rows)
        return f"done: {named} is no longer in force, {chosen.remark} (its key: {row.key!r})"
    finally:
        await log.close()


def _read(seal: Seal, row: StateRow) -> StateRecord | None:
    """Return the record that a row holds, or None if the row removes its key. Raises LedgerCorrupt."""
    return None if row.value is None else decode_state(row.key, seal.row(row.key, row.value))


def _counts(seal: Seal, row: StateRow) -> bool:
    """Return whether readers take a row into account. They skip those that mirrord did not write."""
    try:
        _read(seal, row)
    except (NotOurs, UnknownKey):
        return False
    except LedgerCorrupt:
        return True
    return True


def _is_unreadable(seal: Seal, row: StateRow) -> bool:
    try:
        _read(seal, row)
    except (NotOurs, UnknownKey, SignedLedger, TooNew):
        return False
    except LedgerCorrupt:
        return True
    return False


async def _choose(
    open_log: Callable[[], LedgerLog], seal: Seal, rows: Sequence[StateRow], row: StateRow, ends: LogEnds
) -> _Replacement:
    """Return the first replacement without which no facts are missing. Raises EnvironmentFault if there is none."""
    # Other records that cannot be read need separate orders.
    unreadable = frozenset(each.offset for each in rows if _is_unreadable(seal, each))
    fault: LedgerCorrupt | None = None
    for replacement in _replacements(seal, rows, row, is_trimmed=ends.start > 0):
        ignored = replacement.replaced | unreadable
        store = LedgerStore(open_log(), SystemClock(), trims=False, ignored=ignored)
        try:
            await store.open(read_only=True, create=False)
            _check_lanes(store.state, _newest_snapshot(seal, rows, ignored))
            _check_progress(store.state, row.key)
        except LedgerCorrupt as error:
            fault = error
        else:
            return replacement
        finally:
            await store.close()
    raise EnvironmentFault(f"the record at offset {row.offset} must not be skipped: without it, {fault}") from fault


def _replacements(seal: Seal, rows: Sequence[StateRow], row: StateRow, *, is_trimmed: bool) -> Iterator[_Replacement]:
    alike = [each for each in rows if each.key == row.key]
    whole = frozenset(each.offset for each in alike)
    if kind_of(row.key) not in SNAPSHOT_KINDS:
        yield _by_previous(seal, alike, row) or _Replacement((StateRow(row.key, None),), whole, "and is removed")
        return
    # A snapshot is valid only as a whole, so an older part must not take the place of a newer one.
    yield _Replacement((StateRow(row.key, None),), whole, "and is removed: no snapshot needs it")
    if not is_trimmed:
        parts = [each for each in rows if kind_of(each.key) in SNAPSHOT_KINDS]
        # The records of the flow make a snapshot valid, so they are removed first.
        keys = sorted({each.key for each in parts}, key=lambda key: (kind_of(key) != "flow", key))
        remark = "and all snapshots are removed: the ledger topic still holds all facts"
        yield _Replacement(tuple(StateRow(key, None) for key in keys), frozenset(each.offset for each in parts), remark)


def _by_previous(seal: Seal, alike: Sequence[StateRow], row: StateRow) -> _Replacement | None:
    """Return the replacement by the previous record of the key: old progress records and renewals cost only time."""
    for previous in reversed(alike):
        if previous.offset >= row.offset or not _counts(seal, previous) or _is_unreadable(seal, previous):
            continue
        if previous.value is None:
            return None
        replaced = frozenset(each.offset for each in alike if each.offset > previous.offset)
        again = StateRow(row.key, seal.row(row.key, previous.value))
        return _Replacement((again,), replaced, f"and the record at offset {previous.offset} is in force again")
    return None


def _newest_snapshot(seal: Seal, rows: Sequence[StateRow], ignored: frozenset[int]) -> FlowSnapshot | None:
    flows: dict[str, FlowSnapshot] = {}
    for row in rows:
        if kind_of(row.key) == "flow" and row.offset not in ignored and _counts(seal, row):
            flows.pop(row.key, None)
            record = _read(seal, row)
            if isinstance(record, FlowSnapshot):
                flows[row.key] = record
    return max(flows.values(), key=lambda record: record.cut, default=None)


def _check_lanes(state: FlowState, snapshot: FlowSnapshot | None) -> None:
    """Raise LedgerCorrupt if the snapshot lacks a lane. Lanes that were opened after it do not count."""
    if snapshot is None:
        return
    found = sum(lane.opened_at < snapshot.cut for lane in state.lanes.values())
    if found < snapshot.lanes:
        raise LedgerCorrupt(
            f"the snapshot at ledger offset {snapshot.cut} has only {found} of {snapshot.lanes} lanes: {LOST}"
        )


def _check_progress(state: FlowState, key: str) -> None:
    """Raise LedgerCorrupt if the progress record of a lane that has begun is missing, so that it is unknown how far the
    lane has copied. The record of the ledger's end concerns all lanes: it may have said that a rebuild is incomplete,
    and then all progress records are missing."""
    lanes = list(state.lanes) if key == LEDGER_END_KEY else [LaneId(key.removeprefix(PROGRESS_PREFIX))]
    for lane in lanes:
        known = state.lanes.get(lane)
        if known is not None and len(known.source_runs) and lane not in state.progress:
            raise LedgerCorrupt(f"nothing shows how far the lane {lane} has copied: {LOST}")
