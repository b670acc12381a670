"""The command line: one module for each verb, and the formatting of the output.

A verb module has `register(verbs)`, which adds its parser, and `run(arguments)`, which returns the exit code: 0 ok, 1
failed, 2 usage or configuration, 3 difference found. The input is arguments, the output is tables or JSON. The packages
below this one do the actual work. `main` turns every error into one message.
"""
