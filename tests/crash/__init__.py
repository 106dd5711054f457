"""Real senders and receivers that are killed or frozen at each of their steps."""
