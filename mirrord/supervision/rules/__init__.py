"""The pure decisions of supervision: the placement of lanes, the effect of operator commands, and the judgement of
probes."""
