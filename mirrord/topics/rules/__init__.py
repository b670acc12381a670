"""Makes decisions about topics without any I/O: names, plans, configs, ACLs and deletions."""
