"""Pure decisions about topics: names, plans, configs, ACLs and deletions."""
