"""From the commits of a source table to events."""
