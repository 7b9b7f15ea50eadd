"""A store by TLS: a real Redis with the certificates of tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from limiting.store.redis import opened
from srtm.errors import Unavailable
from tests.support.ports import free_port
from tests.support.redis_server import RedisProcess, needs_redis

pytestmark = [pytest.mark.slow, needs_redis]
CERTIFICATES = Path(__file__).parent.parent.parent / "certificates"
BOTH = ["--bind", "127.0.0.1", "127.0.0.2"]  # the certificate is for the first
KEY = CERTIFICATES / "distributor.key"


@contextmanager
def server(folder: Path, shown: str) -> Iterator[int]:
    """The port of a server that shows that certificate."""
    port, certificate = free_port(), str(CERTIFICATES / shown)
    tls = ["--tls-port", str(port), "--tls-cert-file", certificate, "--tls-key-file", str(KEY)]
    with RedisProcess(folder, *tls, "--tls-ca-cert-file", certificate, "--tls-auth-clients", "no", *BOTH):
        yield port


def trust(monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    monkeypatch.setenv("SRTM_CA_FILE", str(CERTIFICATES / file))


@pytest.mark.parametrize("scheme", ["rediss", "valkeys"])
async def test_a_store_whose_certificate_is_trusted_decides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheme: str
) -> None:
    trust(monkeypatch, "distributor.pem")
    with server(tmp_path, "distributor.pem") as port:
        async with opened(f"{scheme}://127.0.0.1:{port}") as store:
            count, key = await store.nodes()
    assert (count, len(key)) == (1, 32)


@pytest.mark.parametrize(
    ("shown", "trusted", "host", "said"),
    [
        ("distributor.pem", "authority.pem", "127.0.0.1", "is from nobody who is trusted here"),
        ("distributor-expired.pem", "distributor-expired.pem", "127.0.0.1", "has expired"),
        ("distributor.pem", "distributor.pem", "127.0.0.2", r"is not for 127\.0\.0\.2"),
    ],
)
async def test_a_store_whose_certificate_is_wrong_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shown: str, trusted: str, host: str, said: str
) -> None:
    trust(monkeypatch, trusted)
    with server(tmp_path, shown) as port:
        async with opened(f"rediss://{host}:{port}") as store:
            with pytest.raises(Unavailable, match=f"its certificate {said}"):
                await store.nodes()
