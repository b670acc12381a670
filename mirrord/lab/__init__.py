"""Real Kafka brokers on this machine, for the demo, the tests and the benchmarks. They need only Java.

Input: the number of brokers, the Kafka version, and how clients authenticate. Output: a `Cluster`, whose brokers listen
on 127.0.0.1 and can be killed, paused and restarted one by one. A start uses these modules: `java` and `jars` find the
programs to run, `ports` chooses where to listen, and `settings` and `security` define the configuration. `storage`
creates data folders, `node` runs one process, and `cluster` runs all of them. `detached` manages the pair of `mirrord
lab up`.
"""
