"""Formats the receipt of a failover as text."""

from collections.abc import Iterator

from mirrord.model.failover import FailoverReceipt


def receipt_lines(receipt: FailoverReceipt) -> Iterator[str]:
    """Yield the receipt as text for operators."""
    what = f"{len(receipt.topics)} topics of {receipt.flow}" if receipt.topics else receipt.flow
    yield f"{what}: failover {receipt.number} ({receipt.mode}) is {receipt.outcome}{_because(receipt.why)}"
    for each in receipt.steps:
        yield f"  {each.step}: {each.outcome or 'done'}"
    if receipt.outcome == "cancelled":
        yield "  everything is copied as before"
        return
    if receipt.outcome == "complete":
        yield from _losses(receipt)
        yield f"  clients continue on {receipt.target}: {', '.join(receipt.bootstrap)}"
        renamed = {source: target for source, target in receipt.names.items() if source != target}
        for source, target in list(renamed.items())[:20]:
            yield f"  {source} is {target}"
        if len(renamed) > 20:
            yield f"  {len(renamed) - 20} more topics have other names: --json lists them"


def _because(why: str) -> str:
    return f": {why}" if why else ""


def _losses(receipt: FailoverReceipt) -> Iterator[str]:
    complete = receipt.partitions - len(receipt.lost)
    seen = "" if receipt.seen_ms is None else f", as the source was seen {_before(receipt.began_ms - receipt.seen_ms)}"
    yield f"  {complete} of {receipt.partitions} partitions were copied completely{seen if complete else ''}"
    if receipt.lost_records is None:
        yield "  it is not known how many records of some partitions are lost"
    elif receipt.lost:
        yield f"  {receipt.lost_records} offsets are lost"
    for each in receipt.lost[:20]:
        end = "?" if each.end is None else str(each.end)
        age = "never seen" if each.seen_ms is None else f"last seen {_before(receipt.began_ms - each.seen_ms)}"
        missing = "".join(f", and [{start}, {end})" for start, end in each.missing)
        remark = f" ({each.remark})" if each.remark else ""
        yield f"  {each.topic}-{each.partition}: offsets [{each.start}, {end}){missing}, {age}{remark}"
    if len(receipt.lost) > 20:
        yield f"  {len(receipt.lost) - 20} more partitions: --json lists them"


def _before(gap_ms: int) -> str:
    return f"{gap_ms / 1000:.1f} s before the failover began" if gap_ms > 0 else "during the failover"
