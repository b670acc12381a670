"""Kafka bytes, in and out.

In: bytes-like objects that the shell received, or plain values. Out: plain values, or bytes-like parts for the shell to
send. Nothing here waits, and of the libraries only google_crc32c is used. `batch.py` and `crc32c.py` are the hot path;
`fetch.py`, `fetch_session.py` and `produce.py` move batches; `metadata.py`, `offsets.py`, `producers.py`, `configs.py`,
`acls.py` and `cluster.py` hold the requests that are rare; `apis.py` says which versions we speak. Whatever a parser is
given, it returns a value or raises a `WireError`.
"""
