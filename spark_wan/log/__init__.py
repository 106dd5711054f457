"""Logs of streams, above the bytes of a channel: manifests, trust, acks, frames."""
