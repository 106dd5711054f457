"""Every persisted format."""
