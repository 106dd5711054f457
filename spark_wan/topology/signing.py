"""Who signs what, and who is believed, by the topology.

A channel's name in signatures is its sender's ``channel_id``, or else the sender's name: what both
ends read in their own topology, not in the channel, where it could be copied along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from spark_wan.log.trust import NO_KEYS, Keys, ManifestRule, StreamTrust
from spark_wan.topology.model import Sender, Topology
from spark_wan.topology.routes import all_streams, serving
from spark_wan.wire.signature import Signer


def keys_of(topology: Topology) -> Mapping[str, Keys]:
    """Return the keys of all sites that have any."""
    return {site.name: site.signing_keys for site in topology.sites.values() if site.signing_keys}


def sending_trust(topology: Topology, sender: Sender) -> StreamTrust:
    """Return what a sender signs, and which acks have to be signed."""
    keys = keys_of(topology)
    own = keys.get(sender.site)
    signer = Signer(sender.site, sender.channel_name, own) if own else None
    return StreamTrust(signer=signer, ack_keys=keys) if keys else NO_KEYS


def receiving_trust(topology: Topology, site: str, channel: str) -> Callable[[str], StreamTrust]:
    """Return what a site believes of each stream of an inbound channel, by the stream's name, and
    how it signs its acks."""
    receiver, keys = topology.site(site), keys_of(topology)
    if not keys and receiver.accept_from is None:
        return lambda stream: NO_KEYS
    known: dict[str, tuple[Sender | None, str | None]] = {
        each.name: (each.sender, each.origin)
        for each in all_streams(topology)
        if each.sender.channel == channel
    }
    # Of copies only those that may be served: nobody else's are taken.
    known |= {
        each.stream: (each.sender, table.writers[0] if len(table.writers) == 1 else None)
        for table in topology.tables.values()
        for each in serving(topology, table, site)
        if each.sender.channel == channel
    }
    channels: dict[str, frozenset[str]] = {}
    for sender in topology.senders.values():
        if sender.channel == channel:
            names = channels.get(sender.site, frozenset())
            channels[sender.site] = names | {sender.channel_name}
    ack_signer = Signer(site, "", keys[site]) if site in keys else None

    def trust(stream: str) -> StreamTrust:
        sender, origin = known.get(stream, (None, None))
        rule = ManifestRule(
            receiver=site,
            sender=sender.site if sender is not None else None,
            origin=origin,
            keys=keys,
            channels=channels
            if sender is None
            else {**channels, sender.site: frozenset({sender.channel_name})},
            accept_from=receiver.accept_from,
        )
        return StreamTrust(ack_signer=ack_signer, manifests=rule, ack_keys=keys)

    return trust
