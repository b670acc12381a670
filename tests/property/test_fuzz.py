"""A short form of `python -m bench.fuzz`: a few inputs for each decoder."""

import random

import pytest

from bench.fuzz.decoders import Fuzzed, all_decoders
from bench.fuzz.harness import check, input_of

INPUTS = 80
DECODERS = all_decoders()


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_damaged_input_gives_a_value_or_a_documented_error(decoder: Fuzzed) -> None:
    seed = random.randrange(1 << 32)
    assert [fault for number in range(INPUTS) if (fault := check(decoder, seed, number)) is not None] == []


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: decoder.name)
def test_samples_are_valid(decoder: Fuzzed) -> None:
    """Damage to samples reaches deep code only if the samples themselves can be decoded."""
    decoded = 0
    for sample in decoder.samples:
        try:
            decoder.call(sample)
            decoded += 1
        except decoder.errors:
            pass
    assert decoded


def test_inputs_depend_on_seed_and_number_alone() -> None:
    for decoder in DECODERS:
        assert input_of(decoder, 5, 9) == input_of(decoder, 5, 9)
    assert len({input_of(DECODERS[0], 5, number) for number in range(50)}) > 40


def test_what_a_decoder_must_not_do_is_found() -> None:
    def fails(_: bytes) -> object:
        raise KeyError("x")

    assert "KeyError" in str(check(Fuzzed("bad", fails, (ValueError,), [b"abc"]), 1, 2))
    hungry = Fuzzed("hungry", lambda _: bytearray(400 << 20), (), [b"abc"])
    assert "MiB" in str(check(hungry, 1, 2))
