"""The command line: one module for each verb (`start`, `status` and so on), and the modules that format the output.

Each module of a verb has two functions. `register(verbs)` adds the parser of the verb. `run(arguments)` runs the verb
and returns the exit code: 0 for success, 1 for a failure, 2 for wrong usage or a wrong configuration, and 3 if a
difference was found. The output is tables or JSON. Other packages do the actual work. `main` turns every error into one
message.
"""
