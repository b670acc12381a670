"""The command line: one module for each verb, and what its users see.

A verb module has `register(verbs)`, which adds its parser, and `run(arguments)`, which returns the exit code: 0 ok, 1
failed, 2 usage or configuration, 3 difference found. The input is arguments, the output is tables or JSON. The packages
below do the work itself. Every error ends in `main` as one message.
"""
