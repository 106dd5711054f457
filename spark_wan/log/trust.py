"""What one end of a stream signs, and whom it believes.

:mod:`spark_wan.topology.signing` finds it out from the topology. Without keys, nothing is signed
and everything is accepted, as before there were signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_wan.wire.manifest import Manifest
from spark_wan.wire.signature import KeyReference, Signer

Keys = tuple[KeyReference, ...]


@dataclass(frozen=True)
class ManifestRule:
    """Which manifests of one inbound stream a site acts on."""

    receiver: str
    """The receiving site."""
    sender: str | None
    """The site that sends the stream, as the topology says; None: the topology has no such stream
    (a sink with a stream name of its own)."""
    origin: str | None
    """The site that writes the events, as the topology says."""
    keys: Mapping[str, Keys]
    """Site -> its keys, of all sites that have any."""
    channels: Mapping[str, frozenset[str]]
    """Site -> the names that signatures of its senders have for this channel."""
    accept_from: tuple[str, ...] | None = None
    """Sites from which events are taken; None: from all."""

    def refusal(self, manifest: Manifest) -> str | None:
        """Return why a manifest must not be acted on, and what to do; None: it may."""
        signature = manifest.signature
        sender = self.sender
        if sender is None:
            # Only its own site's sink sends a stream that the topology does not know.
            sender = manifest.origin
            if manifest.via is not None and signature is not None:
                sender = signature.site
        if self.accept_from is not None:
            for what, site in (("sent by", sender), ("written at", manifest.origin)):
                if site not in self.accept_from:
                    return (
                        f"it is {what} site {site!r}, which is not in accept_from of site "
                        f"{self.receiver} ({', '.join(self.accept_from)}). The stream is held. "
                        "Add the site there, or remove the stream from the channel."
                    )
        if sender not in self.keys:
            if sender in self.channels or not self._has_keys:
                return None
            return (
                f"it says that it is of site {sender!r}, which has no sender on this channel, and "
                f"other sites sign what they write here. {_ADVICE}"
            )
        wrong = self._not_signed(manifest, sender)
        return None if wrong is None else f"{wrong}. {_ADVICE}"

    @property
    def _has_keys(self) -> bool:
        """Whether any site that sends through this channel has keys."""
        return any(site in self.keys for site in self.channels)

    def _not_signed(self, manifest: Manifest, sender: str) -> str | None:
        signature = manifest.signature
        if signature is None:
            return (
                f"it is not signed, but site {sender!r} has signing_keys. If it was written before "
                "the site had any, let the receiver apply it with a topology that has none"
            )
        if signature.site != sender:
            return f"it is signed by site {signature.site!r}, but its sender is at {sender!r}"
        if self.origin is not None and manifest.origin != self.origin:
            return (
                f"it says that its events are of site {manifest.origin!r}; in the topology the "
                f"stream carries those of {self.origin!r}"
            )
        names = self.channels.get(sender, frozenset())
        if signature.channel not in names:
            return (
                f"it is signed for the channel {signature.channel!r}, and this channel is "
                f"{' or '.join(map(repr, sorted(names))) or 'not one of its site'}: it was copied "
                "from another channel, or the two ends have another channel_id"
            )
        return manifest.not_signed_with(self.keys[sender])


_ADVICE = (
    "The stream is held. Check that both sites have the same topology and keys, and who else may "
    "write to the channel; remove what your senders did not write."
)


@dataclass(frozen=True)
class StreamTrust:
    """What one end of a stream signs, and whom it believes."""

    signer: Signer | None = None
    """Signs the manifests that this end appends; None: they are not signed."""
    ack_signer: Signer | None = None
    """Signs the acks that this end writes."""
    manifests: ManifestRule | None = None
    """Which manifests this end acts on; None: all."""
    ack_keys: Mapping[str, Keys] = field(default_factory=dict)
    """Site -> the keys with which its acks have to be signed."""


NO_KEYS = StreamTrust()
