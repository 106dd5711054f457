"""Channels: where the queue between a sender and its receivers is kept."""
