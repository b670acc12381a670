"""mirrord copies Kafka topics from one cluster to another, exactly once, and proves what has arrived.

`CONTRIBUTING.md` describes the packages and which of them may import which. Policies that users may choose are in the
package `policies`, and Ray actors are in the package `actors`.
"""
