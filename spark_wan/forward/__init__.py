"""Forwarding: what a site receives, and sends on to others."""
