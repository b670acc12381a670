"""mirrord copies Kafka topics from one cluster to another, exactly once, and proves which records have arrived.

`CONTRIBUTING.md` describes each package and lists the packages that it may import. Two packages are outside this one:
`policies` contains the classes that users select in the configuration, for example to name target topics, and `actors`
contains the Ray actors.
"""
