"""TLS to other brokers: made once, with the certificate as its files are now."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import pytest

from broker.links.link_tls import LinkTls
from srtm.errors import BadInput
from tests.support.tls_in_memory import server_context, shake_hands

CERTIFICATES = Path(__file__).parents[2] / "certificates"
SERVER = CERTIFICATES / "distributor.pem"


def shown_by(context: ssl.SSLContext) -> bytes:
    """The certificate that a client shows, in DER."""
    server = server_context(str(SERVER), str(CERTIFICATES / "distributor.key"))
    for trusted in ("authority.pem", "distributor.pem"):
        server.load_verify_locations(CERTIFICATES / trusted)
    server.verify_mode = ssl.CERT_REQUIRED
    found = shake_hands(context, server, "localhost").getpeercert(binary_form=True)
    assert found is not None
    return found


def test_links_share_a_context_that_shows_the_certificate_as_it_is_now(tmp_path: Path) -> None:
    tls = LinkTls(str(SERVER), str(tmp_path / "own.pem"), str(tmp_path / "own.key"))
    shown = []
    for name in ("client", "distributor"):
        for kind in ("pem", "key"):
            shutil.copy(CERTIFICATES / f"{name}.{kind}", tmp_path / f"own.{kind}")
        shown.append(shown_by(tls.context()))
    told = [ssl.PEM_cert_to_DER_cert((CERTIFICATES / f"{name}.pem").read_text()) for name in ("client", "distributor")]
    assert shown == told
    assert tls.context() is tls.context()


def test_links_trust_what_the_file_holds_once_it_is_read_again(tmp_path: Path) -> None:
    trusted = tmp_path / "trusted.pem"
    shutil.copy(CERTIFICATES / "authority.pem", trusted)
    tls = LinkTls(str(trusted), "", "")
    assert len(tls.context().get_ca_certs()) == 1
    trusted.write_text(trusted.read_text() + SERVER.read_text())
    assert len(tls.context().get_ca_certs()) == 1
    tls.renew()
    assert len(tls.context().get_ca_certs()) == 2
    trusted.write_text("no certificate")
    with pytest.raises(BadInput, match="must hold certificates in PEM"):
        tls.renew()
    assert len(tls.context().get_ca_certs()) == 2


@pytest.mark.parametrize(
    ("files", "option"),
    [
        (("none.pem", "", ""), "ca_file"),
        (("authority.pem", "client.pem", "server.key"), "tls_cert"),
        (("authority.pem", "none.pem", "client.key"), "tls_cert"),
    ],
)
def test_a_file_that_is_none_is_named(files: tuple[str, str, str], option: str) -> None:
    ca_file, certificate, key = (str(CERTIFICATES / name) if name else "" for name in files)
    with pytest.raises(BadInput) as caught:
        LinkTls(ca_file, certificate, key).context()
    assert caught.value.field == option
