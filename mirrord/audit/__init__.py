"""Is the copy what the ledger says, and what would it say were it lost? What both logs hold comes in, differences with
exact offsets go out, or the facts of a lane.

Pure: the shell and the jobs read the logs.
"""
