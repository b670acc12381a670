"""Pure decisions of one-off work: which ACLs a flow needs."""
