"""How a hostile source affects the healthy flow of the same daemon."""

from collections.abc import Sequence

from bench.report.table import Result, Table

_MEGABYTE = 1e6
_PERIODS = {
    "quiet": "quiet",
    "quiet_before": "quiet, before the attack",
    "quiet_after": "quiet, after the attack",
    "attack": "attack",
}


def hostile(results: Sequence[Result]) -> list[Table]:
    """Return the latency, the memory, and what the attacks received."""
    first = results[0]
    title = f"added latency of the healthy flow at 1,000 records/s; the attack lasts {first['minutes']:g} minutes"
    head = ["engine, period", "records", "p50 ms", "p99 ms", "p99.9 ms", "most ms", "p99 compared with quiet"]
    delays = [
        [
            f"{each['engine']}, {_PERIODS[period]}",
            f"{each[period]['records']:,}",
            *(f"{each[period][name]:.1f}" for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")),
            f"{each[period]['p99_ms'] / each['quiet']['p99_ms']:.2f}" if each["quiet"]["p99_ms"] > 0 else "-",
        ]
        for each in results
        for period in ("quiet", "quiet_before", "quiet_after", "attack")
        if each.get(period)
    ]
    states = [
        [
            each["engine"],
            f"{each['records']:,}",
            ", ".join(f"{count:,} {kind}" for kind, count in each["differences"].items() if count) or "none",
            "yes" if each["same_daemon"] else "no",
            f"{each['replicators_ended']}",
            f"{each['tracebacks']}",
        ]
        for each in results
    ]
    peaks = [
        [
            f"{each['engine']}: {peak['process']}",
            *(f"{peak[of] / _MEGABYTE:.0f}" for of in ("quiet_bytes", "attack_bytes")),
        ]
        for each in results
        for peak in each["peaks"]
    ]
    attacks = [
        [
            f"{each['engine']}: {attack['attack']}",
            *(f"{attack[of]:,.0f}" for of in ("seconds", "connections", "requests", "hits")),
            _milliseconds(each["p99_by_attack_ms"].get(attack["attack"])),
        ]
        for each in results
        for attack in each["attacks"]
    ]
    what = ["engine", "healthy records compared", "differences", "same daemon", "replicators ended", "tracebacks"]
    return [
        Table(title, head, delays),
        Table("the healthy flow after the attack", what, states),
        Table("peak memory of the largest process of its kind, MB", ["process", "quiet", "attack"], peaks),
        Table("attacks", ["attack", "seconds", "connections", "requests", "wrong answers", "healthy p99 ms"], attacks),
    ]


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
