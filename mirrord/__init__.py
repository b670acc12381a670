"""mirrord copies Kafka topics from one cluster to another, exactly once, and proves what has arrived.

`CONTRIBUTING.md` describes the packages and which may import which. Policies that users may choose are in the package
`policies`, Ray actors in the package `actors`.
"""
