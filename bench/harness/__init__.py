"""Code that questions and campaigns share: clusters, writers and readers of records, mirrord and MirrorMaker 2 as
processes, and the measurement of their CPU time."""
