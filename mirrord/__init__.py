"""mirrord copies Kafka topics from one cluster to another, exactly once, and proves what has arrived.

`CONTRIBUTING.md` describes the packages, and says for each of them which other packages it may import. Two packages are
not part of this one. `policies` contains the classes that users select in the configuration, for example to name target
topics. `actors` contains the Ray actors.
"""
