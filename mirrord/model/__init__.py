"""The basic data types: names, runs, ranges of offsets, ACLs, findings, status, metrics and errors.

The modules define data and its invariants as msgspec structs and small classes. They take and return plain values, and
use no I/O, no clock and no client library. Every other package may import this one.
"""
