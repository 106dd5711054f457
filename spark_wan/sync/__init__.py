"""Asking for copies of a table."""
