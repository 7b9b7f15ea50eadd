"""TLS to other brokers: trusts what distributors' certificates are trusted by, and shows this broker's certificate."""

from __future__ import annotations

import ssl

from srtm.errors import BadInput
from srtm.net.tls_trust import new_trust


class LinkTls:
    """``ca_file``: PEM file of who is trusted; None: the system's certificates. ``certificate``: "": none is shown."""

    def __init__(self, ca_file: str | None, certificate: str, key: str) -> None:
        self._ca_file = ca_file
        self._certificate = certificate
        self._key = key
        self._context: ssl.SSLContext | None = None

    def renew(self) -> None:
        """New connections trust what the file holds now. Raises BadInput; then the old certificates stay."""
        self._context = new_trust(self._ca_file)

    def context(self) -> ssl.SSLContext:
        """The context of a new connection, with the certificate as its files are now. Raises BadInput.

        All connections share one: reading the system's certificates takes 20 ms, and there may be thousands of links.
        """
        if self._context is None:
            self._context = new_trust(self._ca_file)
        if self._certificate:
            try:
                self._context.load_cert_chain(self._certificate, self._key, password=lambda: "")
            except (OSError, ValueError) as error:
                rule = f"must be a certificate in PEM that fits its key, without a passphrase ({error})"
                raise BadInput("tls_cert", self._certificate, rule) from None
        return self._context
