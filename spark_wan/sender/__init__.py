"""The gateway sender: capture, netting, batches, the channel log, the ack keeper."""
