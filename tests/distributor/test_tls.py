"""The distributor over TLS: everybody who talks to it, and what people are told when it does not work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from distributor.config import DistributorConfig
from distributor.service import serve
from srtm.client.distributor import DistributorClient
from srtm.errors import BadInput, PeerError, Unavailable
from srtm.log import Log
from srtm.net.http_client import HttpClient
from srtm.net.renewals import Renewals
from srtm.net.tls_trust import trusting
from srtm.net.tokens import Tokens

CERTIFICATES = Path(__file__).parent.parent / "certificates"
CERTIFICATE = str(CERTIFICATES / "distributor.pem")
KEY = str(CERTIFICATES / "distributor.key")
OTHER = str(CERTIFICATES / "authority.pem")


@pytest.fixture
async def start(tmp_path: Path, nursery: trio.Nursery) -> Any:
    """Starts one; its HOST:PORT."""

    async def started(renewals: Renewals | None = None, **settings: Any) -> str:
        config = DistributorConfig(http_address="127.0.0.1:0", store=f"sqlite:///{tmp_path / 's'}", **settings)
        address = await nursery.start(serve, config, renewals)
        return str(address.http)

    return started


async def test_the_command_line_clients_and_brokers_reach_it(start: Any) -> None:
    address = await start(tls_cert=CERTIFICATE, tls_key=KEY, tokens=Tokens.of_one("secret"))
    async with DistributorClient(f"https://{address}", token="secret", ca_file=CERTIFICATE) as client:
        assert await client.topics() == []
    broker = HttpClient(f"https://{address}", token="secret", tls=trusting(CERTIFICATE))
    with trio.fail_after(10):
        status, body = await broker.request("GET", "/v1/brokers", timeout_s=5)
    await broker.aclose()
    assert (status, json.loads(body)) == (200, [])


async def test_renewed_certificates_and_tokens_are_taken_and_bad_ones_leave_the_old(start: Any, tmp_path: Path) -> None:
    certificate, key, tokens = tmp_path / "c.pem", tmp_path / "c.key", tmp_path / "tokens"
    certificate.write_bytes((CERTIFICATES / "distributor-expired.pem").read_bytes())
    key.write_bytes((CERTIFICATES / "distributor.key").read_bytes())
    tokens.write_text("operator ann old\n")
    lines: list[str] = []
    renewals = Renewals(Log("distributor", lines.append))
    address = await start(
        renewals, tls_cert=str(certificate), tls_key=str(key), tokens=Tokens.read("tokens", str(tokens))
    )

    async def asked(token: str) -> int:
        """A new connection each time: one that is open keeps its certificate."""
        client = HttpClient(f"https://{address}", token=token, tls=trusting(CERTIFICATE))
        try:
            return (await client.request("GET", "/v1/brokers", timeout_s=5))[0]
        finally:
            await client.aclose()

    with pytest.raises(Unavailable, match="its certificate"):
        await asked("old")
    certificate.write_bytes((CERTIFICATES / "distributor.pem").read_bytes())
    tokens.write_text("operator ann new\n")
    renewals.take_all()
    assert [await asked(token) for token in ("old", "new")] == [401, 200]
    certificate.write_text("no certificate")
    tokens.write_text("nonsense\n")
    renewals.take_all()
    assert await asked("new") == 200
    assert ["the old one stays in force" in line for line in lines] == [False, False, True, True]


@pytest.mark.parametrize(
    ("certificate", "scheme", "ca_file", "message"),
    [
        (CERTIFICATE, "https", OTHER, "its certificate is from nobody who is trusted here"),
        (str(CERTIFICATES / "distributor-expired.pem"), "https", "itself", "its certificate has expired"),
        (CERTIFICATE, "http", None, "closed the connection without an answer: should it be https://?"),
        (None, "https", CERTIFICATE, "does not speak TLS: should it be http://?"),
    ],
)
async def test_what_is_wrong_is_one_clear_line(
    start: Any, certificate: str | None, scheme: str, ca_file: str | None, message: str
) -> None:
    address = await start(tls_cert=certificate, tls_key=KEY if certificate else None)
    trusted = certificate if ca_file == "itself" else ca_file
    url = f"{scheme}://{address}"
    async with DistributorClient(url, ca_file=trusted, timeout_s=5) as client:
        with pytest.raises(Unavailable) as refused:
            await client.topics()
    assert str(refused.value).startswith(f"{url} {message}")
    assert "\n" not in str(refused.value)
    broker = HttpClient(url, tls=trusting(trusted) if scheme == "https" else None)
    with pytest.raises((Unavailable, PeerError)) as refused:
        await broker.request("GET", "/v1/brokers", timeout_s=5)
    assert str(refused.value).startswith(f"{url} {message}")


async def test_a_certificate_for_another_name_is_told(start: Any) -> None:
    address = await start(tls_cert=CERTIFICATE, tls_key=KEY)
    url = f"https://127.0.0.2:{address.rpartition(':')[2]}"
    async with DistributorClient(f"https://localhost:{address.rpartition(':')[2]}", ca_file=CERTIFICATE) as client:
        assert await client.topics() == []

    async def connect() -> trio.abc.Stream:
        stream = await trio.open_tcp_stream("127.0.0.1", int(address.rpartition(":")[2]))
        return trio.SSLStream(stream, trusting(CERTIFICATE), server_hostname="127.0.0.2", https_compatible=True)

    client_ = HttpClient(url, tls=trusting(CERTIFICATE), connect=connect)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.2:[0-9]+ its certificate is not for 127\.0\.0\.2"):
        await client_.request("GET", "/ping", timeout_s=5)


async def test_hostile_bytes_and_silent_clients_cost_nobody_else_anything(start: Any) -> None:
    address = await start(tls_cert=CERTIFICATE, tls_key=KEY)
    host, _, port = address.rpartition(":")
    silent = await trio.open_tcp_stream(host, int(port))
    for garbage in (b"\x16\x03\x01\x02\x00" + b"\xff" * 600, b"GET / HTTP/1.1\r\n\r\n", b"\x00"):
        stream = await trio.open_tcp_stream(host, int(port))
        await stream.send_all(garbage)
        await stream.aclose()
    async with DistributorClient(f"https://{address}", ca_file=CERTIFICATE) as client:
        assert await client.topics() == []
    await silent.aclose()


@pytest.mark.parametrize(
    ("certificate", "key", "message"),
    [
        (CERTIFICATE, str(CERTIFICATES / "client.key"), "tls_cert: .*: must be a certificate in PEM that fits its key"),
        (KEY, KEY, "tls_cert: .*: must be a certificate in PEM"),
        ("/nowhere", KEY, "tls_cert: '/nowhere': must be a file that can be read"),
        (CERTIFICATE, "/nowhere", "tls_key: '/nowhere': must be a file that can be read"),
    ],
)
async def test_a_certificate_that_cannot_be_used_is_named_before_anything_starts(
    tmp_path: Path, certificate: str, key: str, message: str
) -> None:
    store = f"sqlite:///{tmp_path / 's'}"
    with pytest.raises(BadInput, match=message):
        await serve(DistributorConfig(http_address="127.0.0.1:0", store=store, tls_cert=certificate, tls_key=key))
    assert not (tmp_path / "s").exists()
