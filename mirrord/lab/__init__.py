"""Starts real Kafka brokers on this machine, for the demo, the tests and the benchmarks. The brokers require only Java.

A caller creates a `Cluster` with a given number of brokers, a Kafka version and an authentication method for clients.
The brokers listen on 127.0.0.1 and can be killed, paused and restarted individually.

`cluster` starts all processes of a cluster and uses the following modules. `jars` finds the programs to run, and
`ports` chooses the ports. `server_properties` and `security` define the configuration. `storage` creates data folders,
`node` runs one process, and `broker_readiness` checks whether a broker is ready.

`cluster_pair` manages the two clusters of `mirrord lab up`. `copy_checker` compares a topic with its copy.
"""
