"""Pure decisions of supervision: the placement of lanes, operator commands, and the judgement of broker probes."""
