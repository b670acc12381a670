"""The speed, size and safety of mirrord, measured on real Kafka clusters on this machine.

In: the installed project and Java. Out: tables for people, and JSON files. The modules here are commands of a few
lines: `demo` is `make demo`, `campaign` is `make campaign` (faults), `run` is `make bench` and `make bench-whole`
(figures, one file per question), `paired` compares two checkouts, `stories` runs the simulator, and the package
`report` writes the pages. README.md lists the folders and says how each figure is measured.
"""
