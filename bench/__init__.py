"""How fast, how small and how safe mirrord is, on real Kafka clusters on this machine.

In: the installed project and Java. Out: tables for people, and JSON beside them. `demo` is `make demo`, `campaign` is
`make campaign` (faults), `run` is `make bench` and `make bench-whole` (figures, one file per question: `throughput`,
`memory`, `latency`, `recovery`, `idle`), `paired` compares two checkouts. README.md says how each figure is measured;
`report` writes the pages that show them.
"""
