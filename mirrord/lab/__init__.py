"""Real Kafka brokers on this machine, for the demo, the tests and the bench. Java is all they need.

In: how many brokers, which version, how clients are let in. Out: `Cluster`, whose brokers listen on 127.0.0.1 and can
be killed, paused and restarted one by one. The way of a start: `java` and `jars` find what to run, `ports` where to
listen, `settings` and `security` what to configure; `storage` makes data folders, `node` runs one process, `cluster`
all of them; `detached` keeps the pair of `mirrord lab up`.
"""
