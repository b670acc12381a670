"""What the loss of a source cluster would mean for a flow, and what is then to be done.

Input: a flow's ledger, the last seen state of the source, and the target cluster. Output: how ready the flow is.
"""
