"""Everything that waits: connections, the ledger's store, admin requests, clocks, the drive loop, HTTP, metrics, logs.

In come decisions of the pure packages below (effects, facts, plans), out go requests to Kafka and to people; answers go
back as inputs. Nothing here decides what is copied.
"""
