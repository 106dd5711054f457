"""The sender: publishes epochs, collects their acks, trims what is done."""
