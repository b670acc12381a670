"""The audit level `ledger`: what the ledger and the start and end offsets of both logs prove about a range. No records
are read."""

from collections.abc import Iterator

from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.record_compare import merged, together
from mirrord.audit.rules.reordering import mapped_disorder
from mirrord.audit.rules.results import Compared, Difference, Explained
from mirrord.ledger.facts.core import LOSSES
from mirrord.model.intervals import uncovered, within


def compare_ledger(
    wanted: AuditRange,
    target_start: int,
    target_end: int,
    *,
    verdicts_are_known: bool,
    others_write: bool = False,
    source_start: int = 0,
) -> Compared:
    """Check that the ledger accounts for every offset of the range, and that the target log still covers the range.

    `target_start` and `target_end` are the log start offset and the log end offset of the target; `source_start` is the
    log start offset of the source. A source offset with neither a target offset nor a verdict is reported as missing if
    the source log still covers it. If the ledger was trimmed and may lack verdicts, such an offset is not reported. The
    verdict "expired" means that the source deleted the record before it was copied. An offset with this verdict is
    nevertheless reported as missing if the source log still covers it.
    """
    pieces_seen = [each for piece in wanted.pieces for each in _piece(piece, target_start, target_end)]
    differences = [each for each in pieces_seen if isinstance(each, Difference)]
    explained = [each for each in pieces_seen if isinstance(each, Explained)]
    mapped = [(piece.source, piece.source + piece.length) for piece in wanted.pieces if not piece.truncated]
    verdict_ranges = [(verdict.start, verdict.end) for verdict in wanted.verdicts]
    source = (wanted.source_start, wanted.source_end)
    unmapped = list(uncovered(source, mapped))
    for verdict in wanted.verdicts:
        for start, end in within((verdict.start, verdict.end), unmapped):
            # The source can only have deleted records below its log start offset.
            deleted = end if verdict.reason != "expired" else min(max(start, source_start), end)
            if start < deleted:
                explained.append(Explained(verdict.reason, "source", start, deleted))
            if deleted < end:
                differences.append(Difference("missing", deleted, None, end - deleted))
    for start, end in uncovered(source, [*mapped, *verdict_ranges]) if verdicts_are_known else ():
        gone = min(max(start, source_start), end)
        if start < gone:
            explained.append(Explained("source-retention", "source", start, gone))
        if gone < end:
            differences.append(Difference("missing", gone, None, end - gone))
    for each in _between(wanted, target_start, target_end, others_write=others_write):
        differences += [each] if isinstance(each, Difference) else []
        explained += [each] if isinstance(each, Explained) else []
    missing = sum(each.length for each in differences if each.kind == "missing" and each.target is not None)
    equal = sum(piece.length for piece in wanted.pieces) - missing
    return Compared(equal, together(differences), merged([*explained, *mapped_disorder(wanted.pieces)]))


def losses_within(wanted: AuditRange, compared: Compared) -> Iterator[Explained]:
    """Yield the losses that the ledger records for a range and that the comparison of the range does not report.

    A comparison of records sees only records that the source still holds. Records that the comparison reports as
    missing are not counted again.
    """
    mapped = [(piece.source, piece.source + piece.length) for piece in wanted.pieces if not piece.truncated]
    missing = [(each.source, each.source + each.length) for each in compared.differences if each.source is not None]
    for verdict in wanted.verdicts:
        if verdict.reason not in LOSSES or verdict.reason == "truncated":
            continue
        known = [(each.start, each.end) for each in compared.explained if each.cause == verdict.reason]
        lost = (max(verdict.start, wanted.source_start), min(verdict.end, wanted.source_end))
        for start, end in uncovered(lost, sorted([*mapped, *missing, *known])):
            yield Explained(verdict.reason, "source", start, end)


def _piece(piece: MapPiece, target_start: int, target_end: int) -> Iterator[Difference | Explained]:
    """Yield the ranges within a part of the map that were truncated or that are not in the target log. Ranges at or
    above the log end offset of the target are differences. All other ranges are explained."""
    lost = max(piece.target, target_end)
    if lost < piece.target + piece.length:
        here = None if piece.truncated else piece.source + lost - piece.target
        yield Difference("missing", here, lost, piece.target + piece.length - lost)
    if piece.truncated:
        yield Explained("truncated", "target", piece.target, piece.target + piece.length)
    gone = min(target_start, piece.target + piece.length)
    if gone > piece.target:
        yield Explained("target-retention", "target", piece.target, gone)


def _between(
    wanted: AuditRange, target_start: int, target_end: int, *, others_write: bool
) -> Iterator[Difference | Explained]:
    """Yield the target offsets that are not in any part of the map. Such offsets are explained if `mirrord quarantine
    replay` appended the records, or if other clients may write to the target. Otherwise, they are differences."""
    placed = [(piece.target, piece.target + piece.length) for piece in wanted.pieces]
    target = (max(wanted.target_start, target_start), min(wanted.target_end, target_end))
    # A replayed record is followed by the marker of its transaction.
    back = [each for at in wanted.brought_back for each in within((at, at + 2), list(uncovered(target, placed)))]
    for start, end in back:
        yield Explained("brought-back", "target", start, end)
    for start, end in uncovered(target, sorted([*placed, *back])):
        if others_write:
            yield Explained("other-writers", "target", start, end)
        else:
            yield Difference("foreign", None, start, end - start)
