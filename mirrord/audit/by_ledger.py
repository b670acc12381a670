"""What the ledger and the ends of both logs prove of a range without reading a record: the level `ledger`."""

from mirrord.audit.model import AuditRange, Compared, Difference, Explained
from mirrord.audit.records import merged, together
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
    """Whether every offset of the range has its place, and the target still reaches over it.

    `target_start` and `target_end` are those of the target's log; the source's begins at `source_start`. Without all
    verdicts known (the ledger was trimmed), source offsets without a place say nothing.
    """
    differences: list[Difference] = []
    explained: list[Explained] = []
    for piece in wanted.pieces:
        lost = max(piece.target, target_end)
        if lost < piece.target + piece.length:
            here = None if piece.truncated else piece.source + lost - piece.target
            differences.append(Difference("missing", here, lost, piece.target + piece.length - lost))
        gone = min(target_start, piece.target + piece.length)
        if gone > piece.target:
            explained.append(Explained("target-retention", "target", piece.target, gone))
    mapped = [(piece.source, piece.source + piece.length) for piece in wanted.pieces if not piece.truncated]
    told = [(verdict.start, verdict.end) for verdict in wanted.verdicts]
    source = (wanted.source_start, wanted.source_end)
    unmapped = list(uncovered(source, mapped))
    for verdict in wanted.verdicts:
        for start, end in within((verdict.start, verdict.end), unmapped):
            explained.append(Explained(verdict.reason, "source", start, end))
    if verdicts_are_known:
        for start, end in uncovered(source, [*mapped, *told]):
            gone = min(max(start, source_start), end)
            if start < gone:
                explained.append(Explained("source-retention", "source", start, gone))
            if gone < end:
                differences.append(Difference("missing", gone, None, end - gone))
    placed = [(piece.target, piece.target + piece.length) for piece in wanted.pieces]
    target = (max(wanted.target_start, target_start), min(wanted.target_end, target_end))
    # What was brought back has the marker of its transaction behind it.
    back = [each for at in wanted.brought_back for each in within((at, at + 2), list(uncovered(target, placed)))]
    explained += [Explained("brought-back", "target", start, end) for start, end in back]
    for start, end in uncovered(target, sorted([*placed, *back])):
        if others_write:
            explained.append(Explained("other-writers", "target", start, end))
        else:
            differences.append(Difference("foreign", None, start, end - start))
    missing = sum(each.length for each in differences if each.kind == "missing" and each.target is not None)
    equal = sum(piece.length for piece in wanted.pieces) - missing
    return Compared(equal, together(differences), merged(explained))
