"""Parts of the fold (`mirrord.ledger.fold`), each for one kind of facts."""
