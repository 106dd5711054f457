"""The runtime of a job, a sender or a receiver: looks at due times, workers, sessions, a handle."""
