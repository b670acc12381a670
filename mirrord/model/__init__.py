"""The basic data types of mirrord: names, runs, ranges of offsets, ACLs, findings, status, metrics and errors.

The modules define the data and its invariants, as msgspec structs and small classes. The functions take and return
plain values. No module performs I/O, reads a clock or uses a client library. Every other package may import this
package.
"""
