"""The replicators of a flow, and the lanes that each of them hosts."""
