"""mirrord copies Kafka topics from one cluster to another, exactly once, and proves what has arrived.

The packages, from low to high: `model` (nouns), `wire` (Kafka bytes), `flow` and `cluster` (decisions), `ledger`
(facts), `shell` (everything that waits), `lab` (brokers for tests), `jobs` (Spark), `cli` (what people type). Choices
live in the package `policies`, Ray actors in the package `actors`.
"""
