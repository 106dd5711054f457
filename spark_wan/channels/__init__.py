"""Channels: the durable gateway queue between a sender and its receivers."""
