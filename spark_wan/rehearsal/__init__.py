"""What jobs would do, found out before they start: nothing is written."""
