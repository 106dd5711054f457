"""Signatures of manifests and acks: HMAC-SHA-256 with a key of the site that signs.

A record that is signed has one more field, ``signature``:

===========  ========  ============================================================================
``site``     string    the site that signs: of a manifest the sender's, of an ack the receiver's
``channel``  string    of a manifest: the channel that it is for, by the name that both ends have
                       for it (a sender's ``channel_id``); of an ack: empty
``key``      string    which of the site's keys: BLAKE2b of the key, 16 hexadecimal digits
``hmac``     string    HMAC-SHA-256, 64 hexadecimal digits
===========  ========  ============================================================================

The HMAC is of the record's kind and version (``WANM 2`` or ``ack``) and a line break, then of the
record's JSON with everything but ``hmac``: with sorted names and without blanks. So it covers
fields that this version does not know, and of two equal names the one that is read.

A key is any text of at least 32 bytes. A topology only says where it is. It is read each time it is
used, and nothing here keeps it, so that it cannot appear in a log, a status or a pickle.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_wan.errors import SigningKeyError

LEAST_KEY_BYTES = 32
"""Length of a key, at least."""
MOST_KEY_BYTES = 4096
"""What is longer is not a key, but some other file."""
SIGNATURE = "signature"


@dataclass(frozen=True)
class KeyReference:
    """Where a key is: in an environment variable or in a file. Never the key itself."""

    kind: str
    """``env`` or ``file``."""
    place: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.place}"

    def secret(self) -> bytes:
        """Return the key, without blanks around it. Raises SigningKeyError, which shows none."""
        try:
            if self.kind == "env":
                found = os.environb[os.fsencode(self.place)]
            else:
                with open(self.place, "rb") as file:
                    found = file.read(MOST_KEY_BYTES + 1)
        except KeyError:
            raise SigningKeyError(
                f"signing key {self}: the environment variable is not set. Set it for this process."
            ) from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise SigningKeyError(
                f"signing key {self}: the file cannot be read ({reason}). Check the path and its "
                "permissions."
            ) from None
        key = found.strip()
        if not LEAST_KEY_BYTES <= len(key) <= MOST_KEY_BYTES:
            raise SigningKeyError(
                f"signing key {self}: it has {len(key)} bytes{'' if len(key) else ' (it is empty)'}"
                f"; a key has {LEAST_KEY_BYTES} to {MOST_KEY_BYTES}. Make one with `openssl rand "
                "-hex 32`."
            )
        return key


@dataclass(frozen=True)
class Signature:
    """A signature, with the fields of the format."""

    site: str
    channel: str
    key: str
    hmac: str


@dataclass(frozen=True)
class Signer:
    """Signs for a site, with the first of its keys."""

    site: str
    channel: str
    keys: tuple[KeyReference, ...]

    def sign(self, kind: str, record: Mapping[str, Any]) -> Signature:
        """Return the signature of a record. Raises SigningKeyError."""
        secret = self.keys[0].secret()
        named = {"site": self.site, "channel": self.channel, "key": key_id(secret)}
        # As a reader will see it: lists for tuples, and text for all names.
        content = json.loads(json.dumps({**record, SIGNATURE: named}))
        return Signature(**named, hmac=_hmac(secret, kind, content))


def key_id(secret: bytes) -> str:
    """Return which key it is. Says nothing of the key to who does not have it."""
    return hashlib.blake2b(secret, digest_size=8, person=b"wan signing key").hexdigest()


def is_signed_with(
    kind: str, record: Mapping[str, Any], signature: Signature, keys: Sequence[KeyReference]
) -> str | None:
    """Return why a record, as it was read, is not signed with one of ``keys``; None: it is.

    Raises SigningKeyError when no key with the signature's ID is found, and one cannot be read.
    """
    content = {**record, SIGNATURE: {**record[SIGNATURE]}}
    content[SIGNATURE].pop("hmac", None)
    unreadable: SigningKeyError | None = None
    for reference in keys:
        try:
            secret = reference.secret()
        except SigningKeyError as error:
            unreadable = error
            continue
        if key_id(secret) == signature.key:
            right = _hmac(secret, kind, content)
            if hmac.compare_digest(right.encode(), signature.hmac.encode(errors="replace")):
                return None
            return "its signature is wrong: it was altered, or signed with another key"
    if unreadable is not None:
        raise unreadable
    return (
        f"it is signed with the key {signature.key[:16]!r}, which is none of the keys of site "
        f"{signature.site!r} here"
    )


def _hmac(secret: bytes, kind: str, content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hmac.new(secret, f"{kind}\n{text}".encode(), hashlib.sha256).hexdigest()
