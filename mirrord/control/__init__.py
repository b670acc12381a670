"""Who may give commands to a daemon: tokens, roles, and proofs of a token. Both sides are here: the checks of the
daemon, and the client, which proves its token without sending it."""
