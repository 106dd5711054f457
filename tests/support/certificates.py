"""An authority of its own for TLS in tests, and certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


@dataclass
class Authority:
    """Signs certificates. Each is a PEM file with its key and the chain."""

    folder: Path
    name: str = "authority"

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = _name(self.name)
        self.certificate = self._signed(name, name, self.key, None, 10 * DAY, ca=True)
        self.file = self.folder / f"{self.name}.pem"
        self.file.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def _signed(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        host: str | None,
        valid: datetime.timedelta,
        ca: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 5 * DAY)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if host is not None:
            names: list[x509.GeneralName] = [x509.DNSName(host)]
            if host[0].isdigit():
                names = [x509.IPAddress(ipaddress.ip_address(host))]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def issue(
        self,
        name: str,
        host: str | None = None,
        valid: datetime.timedelta = 5 * DAY,
        password: str | None = None,
    ) -> Path:
        """Return a PEM file with a key and a certificate for it."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(_name(name), self.certificate.subject, key, host, valid)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        file = self.folder / f"{name}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
            + self.certificate.public_bytes(serialization.Encoding.PEM)
        )
        return file
