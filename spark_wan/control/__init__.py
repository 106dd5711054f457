"""Control: pausing and resuming the streams of a site, from outside and in its jobs."""
