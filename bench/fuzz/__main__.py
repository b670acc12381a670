"""`python -m bench.fuzz`: fuzzes all decoders, and keeps how many inputs each has had in bench/results/fuzz.json.

A later run with the same seed continues behind the last input of the earlier ones.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from bench.fuzz.decoders import all_decoders
from bench.fuzz.harness import Found, fuzz, interrupt_stuck_calls
from bench.report.pages import circumstances

RESULTS = Path(__file__).parents[1] / "results" / "fuzz.json"
AT_ONCE = 200
NICE = 19


def main() -> int:
    """Fuzz, print one line for each fault, and return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m bench.fuzz", description="Fuzz everything that decodes bytes.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many inputs; default: %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--minutes", type=float, default=10.0, help="maximum time; default: %(default)s")
    parser.add_argument("--only", metavar="NAME", default="", help="only decoders whose names contain this text")
    parser.add_argument("--dry", action="store_true", help="keep no result")
    arguments = parser.parse_args()
    os.nice(NICE)
    interrupt_stuck_calls()
    kept: list[dict[str, Any]] = msgspec.json.decode(RESULTS.read_bytes()) if RESULTS.exists() else []
    done: dict[str, int] = {}
    for run in (each for each in kept if each["seed"] == arguments.seed):
        for name, count in run["inputs"].items():
            done[name] = done.get(name, 0) + count
    decoders = [decoder for decoder in all_decoders() if arguments.only in decoder.name]
    counts, found = dict.fromkeys((decoder.name for decoder in decoders), 0), list[Found]()
    began = time.monotonic()
    while sum(counts.values()) < arguments.inputs and time.monotonic() - began < arguments.minutes * 60:
        for decoder in decoders:
            name = decoder.name
            faults = fuzz(decoder, arguments.seed, done.get(name, 0) + counts[name], AT_ONCE)
            counts[name] += AT_ONCE
            for each in faults:
                print(f"{each.decoder}, seed {each.seed}, input {each.number}: {each.what}\n  {each.data}", flush=True)
            found += faults
    seconds = round(time.monotonic() - began, 1)
    print(f"{sum(counts.values()):,} inputs for {len(counts)} decoders in {seconds:,} s: {len(found)} faults")
    if not arguments.dry:
        result = {**circumstances(), "seed": arguments.seed, "seconds": seconds, "inputs": counts, "faults": found}
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode([*kept, result]), indent=2) + b"\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
