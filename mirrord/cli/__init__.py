"""The command line: one module for each verb, and the modules that format the output.

Each module of a verb has two functions. `register(verbs)` adds the parser of the verb. `run(arguments)` runs the verb
and returns the exit code: 0 success, 1 failure, 2 wrong usage or configuration, 3 a difference was found. The output is
tables or JSON. Other packages do the actual work. `main` turns every error into one message.
"""
