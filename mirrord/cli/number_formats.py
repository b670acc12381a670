"""Formats numbers for a terminal: counts, shares, sizes and durations."""

UNKNOWN = "-"


def count(number: float | None) -> str:
    """Format a number, as in 1,234,567."""
    return UNKNOWN if number is None else f"{number:,.0f}"


def share(part: float | None) -> str:
    """Format a share, as in 97.5 %. A share below 1 is never rounded up to 100 %."""
    if part is None:
        return UNKNOWN
    return "100 %" if part >= 1 else f"{int(part * 1000) / 10:.1f} %"


def size(number_bytes: float | None) -> str:
    """Format a number of bytes, as in 12.3 MB."""
    if number_bytes is None:
        return UNKNOWN
    for unit in ("B", "kB", "MB", "GB"):
        if number_bytes < 1000:
            return f"{number_bytes:.0f} {unit}" if unit == "B" else f"{number_bytes:.1f} {unit}"
        number_bytes /= 1000
    return f"{number_bytes:.1f} TB"


def duration(seconds: float | None) -> str:
    """Format a number of seconds, as in 850 ms, 12.5 s, 3 min 20 s, 2 h 05 min or 10 d 4 h."""
    if seconds is None:
        return UNKNOWN
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms" if seconds else "0 s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3_600} h {whole % 3_600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3_600} h"


def milliseconds(number_ms: float | None) -> str:
    """Format a number of milliseconds, as in 4.2 ms, 850 ms or 12.5 s."""
    if number_ms is not None and number_ms < 10:
        return f"{number_ms:.1f} ms"
    return duration(None if number_ms is None else number_ms / 1000)
