"""Is the copy what the ledger says? What both logs hold of a range comes in, differences with exact offsets go out.

Pure: the shell and the jobs read the logs.
"""
