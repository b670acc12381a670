"""Mutations of the rules by which a host reads a target to which other clients write in transactions
(`tests.sim.mutations`)."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from mirrord.kafka.client import committed_batches
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import TRANSACTIONAL, Header
from mirrord.replication.host import batch_relocation, batch_verification, own_batch_scan
from mirrord.replication.host import superseded_lookup as lookup
from tests.fixtures.fake_pipe import as_any

SwitchOff = Callable[[pytest.MonkeyPatch], None]


class _Log:
    """A target log that is read in another way."""

    def __init__(self, log: Any, *, waits: bool = False) -> None:
        """If `waits` is set, all reads are of committed records, which end at the last stable offset. Otherwise, no
        transaction counts as aborted."""
        self._log, self._waits = log, waits

    async def read(self, partition: Any, start: int, end: int, *, committed: bool = False) -> AsyncIterator[ReadBatch]:
        async for batch in self._log.read(partition, start, end, committed=committed or self._waits):
            yield batch if self._waits else batch._replace(aborted=False)


def _filtered(patch: pytest.MonkeyPatch, wanted: Callable[[ReadBatch], bool]) -> None:
    """A lookup sees these of the batches only."""
    true = lookup.committed_batches

    async def committed(*where: Any) -> AsyncIterator[ReadBatch]:
        async for batch in true(*where):
            if wanted(batch):
                yield batch

    patch.setattr(lookup, "committed_batches", committed)


# The lookup of missing records


def aborted_records_of_others_supersede(patch: pytest.MonkeyPatch) -> None:
    true = lookup.committed_batches

    async def commits(_: object) -> bool:
        return True

    patch.setattr(lookup, "committed_batches", lambda log, *where: true(as_any(_Log(log)), *where))
    patch.setattr(committed_batches, "_commits", commits)


def records_of_open_transactions_supersede(patch: pytest.MonkeyPatch) -> None:
    true = committed_batches._fate

    def fate(header: Header, markers: committed_batches.Markers) -> committed_batches.TransactionFate:
        found = true(header, markers)
        return "committed" if found == "open" else found

    patch.setattr(committed_batches, "_fate", fate)


def committed_records_of_others_supersede_nothing(patch: pytest.MonkeyPatch) -> None:
    _filtered(patch, lambda batch: not batch.header.attributes & TRANSACTIONAL)


def a_lookup_ends_at_an_open_transaction(patch: pytest.MonkeyPatch) -> None:
    true = committed_batches.unaborted_batches

    def unaborted(log: Any, partition: Any, start: int, stable: int, end: int, log_end: int) -> AsyncIterator[Any]:
        return true(log, partition, start, stable, min(stable, end), log_end)

    patch.setattr(committed_batches, "unaborted_batches", unaborted)


def no_transaction_ends_above_an_open_one(patch: pytest.MonkeyPatch) -> None:
    async def markers(*_: Any) -> committed_batches.Markers:
        return {}

    patch.setattr(committed_batches, "_markers", markers)


# Everything else reads uncommitted records


def a_scan_waits_for_transactions(patch: pytest.MonkeyPatch) -> None:
    true = own_batch_scan.own_batches
    patch.setattr(own_batch_scan, "own_batches", lambda log, *asked: true(as_any(_Log(log, waits=True)), *asked))


def a_comparison_waits_for_transactions(patch: pytest.MonkeyPatch) -> None:
    true = batch_verification.BatchVerification.__init__

    def begin(self: Any, source: Any, target: Any, *more: Any) -> None:
        true(self, source, as_any(_Log(target, waits=True)), *more)

    patch.setattr(batch_verification.BatchVerification, "__init__", begin)


def a_relocation_waits_for_transactions(patch: pytest.MonkeyPatch) -> None:
    true = batch_relocation.BatchRelocation.__init__

    def begin(self: Any, source: Any, target: Any, *more: Any, **rules: Any) -> None:
        true(self, source, as_any(_Log(target, waits=True)), *more, **rules)

    patch.setattr(batch_relocation.BatchRelocation, "__init__", begin)


def a_marker_is_a_batch_of_its_producer(patch: pytest.MonkeyPatch) -> None:
    for module in (own_batch_scan, batch_verification, batch_relocation):
        patch.setattr(module, "is_own", lambda header, producer_id: header.producer_id == producer_id)


_LOST, _KILLED = "lost_beside_transactions", "killed_beside_an_open_transaction"
_MARKED = "marker_with_the_producer_id_of_the_lane"
RULES: tuple[tuple[str, SwitchOff, str, str], ...] = (
    ("other clients' aborted records supersede nothing", aborted_records_of_others_supersede, "plain", _LOST),
    ("records of open transactions supersede nothing", records_of_open_transactions_supersede, "plain", _LOST),
    ("other clients' committed records supersede", committed_records_of_others_supersede_nothing, "plain", _LOST),
    ("a lookup reads above open transactions", a_lookup_ends_at_an_open_transaction, "plain", _LOST),
    ("transactions end above open ones", no_transaction_ends_above_an_open_one, "plain", _LOST),
    ("a scan does not wait for transactions", a_scan_waits_for_transactions, "plain, old records", _KILLED),
    ("a comparison does not wait for transactions", a_comparison_waits_for_transactions, "plain, old records", _KILLED),
    ("a marker is not a batch of a lane", a_marker_is_a_batch_of_its_producer, "plain, old records", _MARKED),
)
