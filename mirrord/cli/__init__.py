"""What people type: one verb one file, and what they see.

A verb module has `register(verbs)`, which adds its parser, and `run(arguments)`, which returns the exit code: 0 ok,
1 failed, 2 usage or configuration, 3 difference found. In come arguments, out go tables or JSON; the work itself is
done below. Every error ends in `main` as one message.
"""
