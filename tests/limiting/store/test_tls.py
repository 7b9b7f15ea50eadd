"""A store by TLS: a real Redis with the certificates of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from limiting.store.redis import opened
from srtm.errors import Unavailable
from tests.support.broker_process import free_port
from tests.support.redis_server import RedisProcess, needs_redis

pytestmark = [pytest.mark.slow, needs_redis]
CERTIFICATES = Path(__file__).parent.parent.parent / "certificates"
BOTH = ["--bind", "127.0.0.1", "127.0.0.2"]  # the certificate is for the first
KEY = CERTIFICATES / "distributor.key"


@pytest.fixture(params=["distributor.pem"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """HOST:PORT of a server that shows the certificate of the parameter."""
    port, shown = free_port(), CERTIFICATES / request.param
    tls = ["--tls-port", str(port), "--tls-cert-file", str(shown), "--tls-key-file", str(KEY)]
    with RedisProcess(tmp_path, *tls, "--tls-ca-cert-file", str(shown), "--tls-auth-clients", "no", *BOTH):
        yield f"127.0.0.1:{port}"


def trust(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.setenv("SRTM_CA_FILE", str(CERTIFICATES / file))


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_a_store_whose_certificate_is_trusted_decides(
    monkeypatch: pytest.MonkeyPatch, address: str, scheme: str
) -> None:
    trust(monkeypatch, "distributor.pem")
    async with opened(f"{scheme}://{address}") as store:
        count, key = await store.nodes()
    assert (count, len(key)) == (1, 32)


async def test_a_store_whose_certificate_nobody_trusts_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    trust(monkeypatch, "authority.pem")
    async with opened(f"rediss://{address}") as store:
        with pytest.raises(Unavailable, match="its certificate is from nobody who is trusted here"):
            await store.nodes()


@pytest.mark.parametrize("address", ["distributor-expired.pem"], indirect=True)
async def test_a_store_whose_certificate_has_expired_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    trust(monkeypatch, "distributor-expired.pem")
    async with opened(f"rediss://{address}") as store:
        with pytest.raises(Unavailable, match="its certificate has expired"):
            await store.nodes()


async def test_a_certificate_for_another_host_is_refused(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    trust(monkeypatch, "distributor.pem")
    async with opened(f"rediss://{address.replace('127.0.0.1', '127.0.0.2')}") as store:
        with pytest.raises(Unavailable, match=r"its certificate is not for 127\.0\.0\.2"):
            await store.nodes()
