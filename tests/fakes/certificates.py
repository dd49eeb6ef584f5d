"""Certificates for loopback, signed by an authority of the test's own."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """``ca`` is the file that clients check with. Each ``issue`` writes a certificate and its key beside it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of the tests")])
        basic = x509.BasicConstraints(ca=True, path_length=0)
        usage = x509.KeyUsage(*(name in ("sign", "crl") for name in _USAGES))
        made = self._builder(self._name, self._key).add_extension(basic, critical=True)
        made = made.add_extension(usage, critical=True)
        self.ca = directory / "ca.pem"
        self.ca.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str = "server", password: bytes | None = None) -> tuple[Path, Path]:
        """Return the files of a new certificate for 127.0.0.1, ::1 and localhost, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        places = [x509.IPAddress(ip_address("127.0.0.1")), x509.IPAddress(ip_address("::1")), x509.DNSName("localhost")]
        made = self._builder(subject, key).add_extension(x509.SubjectAlternativeName(places), critical=False)
        certificate = self._directory / f"{name}.pem"
        certificate.write_bytes(made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        locked = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        key_file = self._directory / f"{name}.key"
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, locked))
        return certificate, key_file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        return builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))


_USAGES = ("signature", "commitment", "encipherment", "data", "agreement", "sign", "crl", "encipher", "decipher")
