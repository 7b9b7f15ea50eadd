"""Whom a process trusts, before and after its file was read again."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from srtm.errors import BadInput
from srtm.net.tls_trust import renew_trust, trusting
from tests.support.tls_in_memory import server_context, shake_hands

CERTIFICATES = Path(__file__).parents[2] / "certificates"


def is_trusted(by: ssl.SSLContext, name: str, host: str) -> bool:
    """Whether a client takes the certificate ``name`` of a server."""
    server = server_context(str(CERTIFICATES / f"{name}.pem"), str(CERTIFICATES / f"{name}.key"))
    try:
        shake_hands(by, server, host)
    except ssl.SSLCertVerificationError:
        return False
    return True


def test_contexts_that_are_there_trust_what_was_added_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "trusted.pem"
    file.write_bytes((CERTIFICATES / "authority.pem").read_bytes())
    context = trusting(str(file))
    assert not is_trusted(context, "distributor", "localhost")
    file.write_bytes(file.read_bytes() + (CERTIFICATES / "distributor.pem").read_bytes())
    assert not is_trusted(context, "distributor", "localhost")
    renew_trust(str(file))
    assert is_trusted(context, "distributor", "localhost")
    assert trusting(str(file)) is context


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_bad_file_is_named_and_the_old_certificates_stay(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "trusted.pem"
    file.write_bytes((CERTIFICATES / "distributor.pem").read_bytes())
    context = trusting(str(file))
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(BadInput, match=r"ca_file: '.*trusted.pem': must "):
        renew_trust(str(file))
    assert is_trusted(context, "distributor", "localhost")
