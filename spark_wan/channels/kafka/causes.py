"""Why a request to a broker failed, in words that say what to do about it."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Sequence

_ADVICE = (
    (
        "CERTIFICATE_VERIFY_FAILED.*expired",
        "A certificate has expired: renew it (the broker's, or that of the authority).",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED.*(hostname mismatch|IP address mismatch|doesn't match)",
        "The broker's certificate is for another host name: use that name in the URL and in the "
        "broker's advertised.listeners, or give the broker a certificate with this one.",
    ),
    (
        "CERTIFICATE_VERIFY_FAILED",
        "The broker's certificate is not signed by an authority that is trusted here: set "
        "kafka.ssl.truststore.location to the PEM file of its authority.",
    ),
    (
        "certificate required|CERTIFICATE_REQUIRED|BAD_CERTIFICATE|CERTIFICATE_UNKNOWN"
        "|alert certificate expired|CERTIFICATE_EXPIRED|UNKNOWN_CA",
        "The broker does not take the client's certificate: set kafka.ssl.keystore.location to a "
        "PEM file with a key and a certificate that is valid and signed by an authority that the "
        "broker trusts.",
    ),
    (
        "WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|PACKET_LENGTH|UNEXPECTED_EOF",
        "The broker does not speak TLS at this port: check the port, or kafka.security.protocol.",
    ),
    (
        "SaslAuthenticationFailed|SaslAuthentication|Authentication failed",
        "The broker refuses the login: check user name, password and kafka.sasl.mechanism.",
    ),
    (
        "UnsupportedSaslMechanism|SaslHandshake",
        "The broker does not offer this way to log in: check kafka.sasl.mechanism.",
    ),
    (
        "ClusterAuthorizationFailed",
        "The user may not ask this of the cluster: let an administrator make the topics.",
    ),
    (
        "AuthorizationFailed|AuthorizationError",
        "The user lacks a permission (ACL). Senders need READ, WRITE, DESCRIBE and DELETE on the "
        "topics of frames and of the log, and READ on the acks; receivers need READ on all, and "
        "WRITE on the acks; who makes topics needs CREATE.",
    ),
    (
        "UnknownTopicOrPartition",
        "The topics are not there: start the sender, which makes them; check the prefix.",
    ),
    (
        "NotEnoughReplicas",
        "Fewer replicas are in sync than min.insync.replicas asks for: start the brokers that are "
        "down.",
    ),
    (
        "Invalid frame length",
        "The broker speaks TLS at this port: check the port, or kafka.security.protocol.",
    ),
    (
        "socket disconnected|Connection (reset|closed)",
        # Also where it said why: kafka-python drops what arrives together with the end.
        "The broker closed the connection at once: check that kafka.security.protocol is the one "
        "of this port, and, with a login, user name, password and kafka.sasl.mechanism; or the "
        "broker is ending.",
    ),
)

_CAUSE = re.compile(
    r"(?:Connection failed: |Bootstrap connection to \S+ failed: |(?=DNS lookup failed))"
    r"(.*?)(?: \(backoff [0-9.]+ secs\))?"
)


def explained(causes: Sequence[str]) -> tuple[str, str]:
    """Return the cause that says most, and what to do about it.

    One login that is refused is followed by attempts that a broker ends without a word.
    """
    for form, advice in _ADVICE:
        for cause in causes:
            if re.search(form, cause, re.IGNORECASE):
                return cause, advice
    return "; ".join(causes[:2]), "Check that the brokers run and can be reached from here."


class LoggedCauses(logging.Handler):
    """What the client of a broker logged lately of connections that failed.

    kafka-python says "unable to bootstrap" for any error of a first connection, and logs why.
    """

    def __init__(self, client: str) -> None:
        super().__init__(logging.WARNING)
        self._client = client
        self._said: deque[tuple[float, str]] = deque(maxlen=20)
        logger = logging.getLogger("kafka")
        theirs = [each for each in logger.handlers if type(each) is not logging.NullHandler]
        if logger.level == logging.NOTSET and not theirs:
            # While brokers are away it logs several lines a second. Errors here say the same once.
            logger.propagate = False
        logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        match = _CAUSE.fullmatch(record.getMessage().partition("\n")[0])
        if match is not None and self._client in (record.threadName or ""):
            self._said.append((time.monotonic(), match[1][:500]))

    def recent(self) -> list[str]:
        """Return what was said in the last minute, the newest first."""
        since = time.monotonic() - 60
        return [text for said, text in reversed(self._said) if said >= since]

    def close(self) -> None:
        logging.getLogger("kafka").removeHandler(self)
        super().close()
