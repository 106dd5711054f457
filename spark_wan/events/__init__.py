"""Events: row changes, their identity, their columns."""
