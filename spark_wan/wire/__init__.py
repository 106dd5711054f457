"""The formats of what senders and receivers write."""
