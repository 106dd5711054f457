"""Drawings of a topology: its graph, and the picture of it."""
