"""Which epochs are applied, in which order, and what the site acks."""
