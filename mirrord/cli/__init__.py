"""The command line: one module for each verb (`start`, `status` and so on), and the modules that format the output.

Each verb's module has two functions. `register(verbs)` adds the verb's parser. `run(arguments)` runs the verb and
returns the exit code: 0 for success, 1 for a failure, 2 for incorrect usage or an invalid configuration, and 3 if a
difference was found. The output is either tables or JSON. Other packages do the actual work. `main` turns every error
into a single message.
"""
