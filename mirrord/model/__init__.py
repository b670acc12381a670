"""The basic data types: names, offsets and runs, configuration, facts, status, errors.

The modules hold data and its invariants, as msgspec structs and small classes. Input and output are plain values only:
there is no I/O, no clock and no client library. Every other package may import this one.
"""
