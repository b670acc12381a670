"""The decisions of supervision, as pure functions: the placement of lanes, the effect of operator commands, and the
judgment of probes."""
