"""Random schedules of the core at the sites of a small topology (test_simulation.py)."""
