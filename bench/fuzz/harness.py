"""Makes inputs from a seed, calls a decoder with them, and watches what it does."""

import random
import resource
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

import msgspec

from bench.fuzz.decoders import Fuzzed

MOST_SECONDS = 1.0
MOST_BYTES = 64 << 20
STUCK_SECONDS = 10
"""After this time, a call is interrupted."""
LONGEST = 400
NESTED = 0.005
"""Share of the inputs that are arrays or tables nested a few thousand times."""
_SPECIAL = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x00\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 9 + b"\x01",
    b"\xdd\xff\xff\xff\xff",
    b"\xc1",
)


class Found(msgspec.Struct, frozen=True):
    """An input with which a decoder did something that it must not do."""

    decoder: str
    seed: int
    number: int
    what: str
    data: str
    """The input in hexadecimal digits."""


class Stuck(BaseException):
    """Raised in a call that does not end."""


def input_of(decoder: Fuzzed, seed: int, number: int) -> bytes:
    """Return one input of a decoder. The same seed and number give the same input."""
    chance = random.Random(f"{seed}/{decoder.name}/{number}")
    if chance.random() < 0.1:
        return chance.randbytes(chance.randrange(LONGEST))
    if chance.random() < NESTED:
        return chance.choice((b"", b"\x09\x94")) + chance.choice((b"[", b"\x91", b'{"a":', b"\x81\xa1a")) * 3_000
    data = bytearray(chance.choice(decoder.samples))
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        _damage(data, chance, decoder.samples)
    if decoder.mend is not None and chance.random() < 0.7:
        return decoder.mend(bytes(data))
    return bytes(data)


def _damage(data: bytearray, chance: random.Random, others: Sequence[bytes]) -> None:
    at = chance.randrange(len(data) + 1)
    match chance.randrange(8):
        case 0 if at < len(data):
            data[at] ^= 1 << chance.randrange(8)
        case 1 if at < len(data):
            data[at] = chance.randrange(256)
        case 2:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        case 3:
            del data[at : at + chance.randrange(1, 9)]
        case 4:
            special = chance.choice(_SPECIAL)
            data[at : at + len(special)] = special
        case 5:
            del data[at:]
        case 6:
            part = data[at : at + chance.randrange(1, 64)]
            data[at:at] = part * chance.randrange(1, 5)
        case _:
            other = chance.choice(others)
            begin = chance.randrange(len(other) + 1)
            data[at:] = other[begin : begin + 4 * LONGEST]


def check(decoder: Fuzzed, seed: int, number: int) -> Found | None:
    """Call a decoder with one input. Return what it did wrong, or None."""
    data = input_of(decoder, seed, number)
    _reset_peak()
    before, began = _peak_bytes(), time.perf_counter()
    what = ""
    try:
        decoder.call(data)
    except decoder.errors:
        pass
    except Stuck:
        what = f"it did not end within {STUCK_SECONDS} s"
    except Exception as error:  # noqa: BLE001 -- this is what is searched for
        what = f"{type(error).__name__}: {error}"[:300]
    took, grown = time.perf_counter() - began, _peak_bytes() - before
    if not what and took > MOST_SECONDS:
        # Another process may have had the CPU, so a slow call is repeated.
        what = _again(decoder, data)
    if not what and grown > MOST_BYTES:
        what = f"it used {grown >> 20} MiB"
    return Found(decoder.name, seed, number, what, data[:4096].hex()) if what else None


def _again(decoder: Fuzzed, data: bytes) -> str:
    began = time.process_time()
    try:
        decoder.call(data)
    except decoder.errors:
        pass
    except Stuck:
        return f"it did not end within {STUCK_SECONDS} s"
    took = time.process_time() - began
    return f"it took {took:.1f} s" if took > MOST_SECONDS else ""


def _reset_peak() -> None:
    """Set the peak of this process's memory to what it uses now (Linux: proc(5), clear_refs).

    Without that, a call that uses less than some earlier call of the process would not be noticed.
    """
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_bytes() -> int:
    """Return the most memory that this process has used since the last reset."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def interrupt_stuck_calls() -> None:
    """From now on, raise Stuck in calls for which `watch` was called and that do not end."""

    def stop(_: int, __: FrameType | None) -> None:
        raise Stuck

    signal.signal(signal.SIGALRM, stop)


def fuzz(decoder: Fuzzed, seed: int, first: int, count: int) -> list[Found]:
    """Call a decoder with `count` inputs, beginning with the number `first`."""
    found: list[Found] = []
    for number in range(first, first + count):
        signal.setitimer(signal.ITIMER_REAL, STUCK_SECONDS)
        fault = check(decoder, seed, number)
        if fault is not None:
            found.append(fault)
    signal.setitimer(signal.ITIMER_REAL, 0)
    return found
