"""The supervision of one flow: holds the flow's lease, assigns its lanes to replicators, and reports its status."""
