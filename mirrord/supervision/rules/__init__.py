"""The pure decisions of supervision: the placement of lanes, the effect of operator commands, and the judgment of
probes."""
