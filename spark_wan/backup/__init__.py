"""Backups: made at one site while writes go on, and adopted at another."""
