"""Pure decisions of audits: what is compared, what a difference means, and how it is reported."""
