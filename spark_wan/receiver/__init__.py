"""The gateway receiver: plan, dedup, apply, ledger, acks."""
