"""Certificates of the servers that a cluster calls."""

from __future__ import annotations

from dataclasses import dataclass
import datetime
import hashlib
import ipaddress
import logging
import os
from pathlib import Path
import ssl
import tempfile

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CertificateSet:
    """
    A certificate for a server, and the authority that vouches for it, all PEM.

    :param authority: certificate of the authority; goes into ``caBundle``.
    :param certificate: of the server.
    :param key: of the server.
    """

    authority: bytes
    certificate: bytes
    key: bytes


def make_certificates(hosts: tuple[str, ...], days: int = 365) -> CertificateSet:
    """
    Make an authority, and a certificate signed by it; the authority's key is thrown away.

    :param hosts: names and addresses of the server.
    :param days: for how long they are valid.
    """
    # Half a second to import, which only those who serve need spend.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
    now = datetime.datetime.now(datetime.timezone.utc)
    # Clocks differ; an hour is more than any cluster would work with.
    begin, end = now - datetime.timedelta(hours=1), now + datetime.timedelta(days=days)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, 'laimr-ca')])
    authority = (
        x509.CertificateBuilder().subject_name(authority_name).issuer_name(authority_name)
        .public_key(authority_key.public_key()).serial_number(x509.random_serial_number())
        .not_valid_before(begin).not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()),
                       critical=False)
        .add_extension(x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
            encipher_only=False, decipher_only=False), critical=True)
        .sign(authority_key, hashes.SHA256()))
    key = ec.generate_private_key(ec.SECP256R1())
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])]))
        .issuer_name(authority_name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()),
            critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256()))
    pem = serialization.Encoding.PEM
    return CertificateSet(
        authority.public_bytes(pem), certificate.public_bytes(pem),
        key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))


class ServingCertificate:
    """
    The certificate of a server: from files that may change, or made at the start.

    :param cert_file: PEM; empty to make one.
    :param key_file: PEM.
    :param hosts: names for one that is made.
    :raises ValueError: if the files cannot be used.
    """

    def __init__(self, cert_file: str, key_file: str, hosts: tuple[str, ...]) -> None:
        self._files = (Path(cert_file), Path(key_file)) if cert_file else None
        self._made = None if cert_file else make_certificates(hosts)
        self._digest = b''
        try:
            self._digest = self._read_digest()
            self.context()
        except (OSError, ssl.SSLError) as error:
            raise ValueError(
                f'tls_cert_file {cert_file!r}, tls_key_file {key_file!r} cannot be used: {error}; '
                'name a PEM certificate and its key') from None

    def context(self) -> ssl.SSLContext:
        """Return a new context that shows the certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Have a context show the certificate from its next connection on."""
        if self._files is not None:
            context.load_cert_chain(*self._files)
            return
        assert self._made is not None
        # The ssl module reads files only.
        descriptor, name = tempfile.mkstemp()
        try:
            with os.fdopen(descriptor, 'wb') as file:
                file.write(self._made.key + self._made.certificate)
            context.load_cert_chain(name)
        finally:
            os.unlink(name)

    def changed(self) -> bool:
        """
        Return whether the files have changed to a pair that can be used, since the last call.

        A pair that cannot is logged, and the one before stays.
        """
        if self._files is None:
            return False
        try:
            digest = self._read_digest()
            if digest == self._digest:
                return False
            self._digest = digest
            self.context()
        except (OSError, ssl.SSLError) as error:
            # The two files change one after the other, so this may be only for a moment.
            _logger.warning('the certificate changed but cannot be used: %s', error)
            return False
        _logger.info('the certificate has changed: %s', self._files[0])
        return True

    def pem(self) -> tuple[bytes, bytes]:
        """Return key and certificate."""
        if self._files is None:
            assert self._made is not None
            return self._made.key, self._made.certificate
        return self._files[1].read_bytes(), self._files[0].read_bytes()

    def _read_digest(self) -> bytes:
        if self._files is None:
            return b''
        return hashlib.sha256(b'\0'.join(path.read_bytes() for path in self._files)).digest()
