"""Channels: where the gateway queue between a sender and its receivers is kept."""
