"""The receiver: its job, its channels, its tables and their streams."""
