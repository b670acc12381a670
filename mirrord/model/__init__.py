"""The nouns: names, offsets and runs, configuration, facts, status, errors.

What lives here is data and its invariants, as msgspec structs and small classes. Nothing comes in but plain values,
nothing goes out but plain values: no I/O, no clock, no client library. Every other package may import this one.
"""
