"""Consumer groups: reads their positions at one cluster and commits them at the other, in both directions."""
