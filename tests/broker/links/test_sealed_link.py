"""TLS to another broker: whom it is not begun with, and what people are told then."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest
import trio

from broker.config import EngineConfig
from broker.links.sealed_link import open_sealed
from srtm._native import Engine
from srtm.errors import PeerError

CERTIFICATES = Path(__file__).parents[2] / "certificates"


def trusting(name: str) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATES / name)


@contextmanager
def listening(**settings: str) -> Iterator[int]:
    """An engine's NSQ port."""
    engine = Engine(msgspec.json.encode(EngineConfig(tcp_address="127.0.0.1:0", **settings)))
    port = engine.start()[0]
    assert port is not None
    try:
        yield port
    finally:
        engine.stop(0)


async def test_a_broker_without_tls_gets_no_key() -> None:
    with listening() as port, trio.fail_after(10), pytest.raises(PeerError, match="has no TLS"):
        await open_sealed("127.0.0.1", port, trusting("distributor.pem"))


async def test_a_certificate_that_is_not_trusted_is_told() -> None:
    files = {"tls_cert_pem": "distributor.pem", "tls_key_pem": "distributor.key"}
    pem = {name: (CERTIFICATES / file).read_text() for name, file in files.items()}
    with (
        listening(**pem, tls_required="true") as port,
        trio.fail_after(10),
        pytest.raises(PeerError, match="self-signed certificate"),
    ):
        await open_sealed("127.0.0.1", port, trusting("authority.pem"))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"", "has ended the connection"),
        (b"\0\0\0\x09\0\0\0\1E_BAD", "refused: E_BAD"),
        (b"\xff\xff\xff\xff\0\0\0\0", "is no answer of a broker"),
        (b"\0\0\0\x06\0\0\0\0OK", "answer to IDENTIFY"),
    ],
)
async def test_who_answers_as_no_broker_does_is_left(said: bytes, told: str) -> None:
    async def answer(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if said:
            await stream.send_all(said)

    async with trio.open_nursery() as nursery:
        serve: Callable[..., object] = partial(trio.serve_tcp, answer, 0, host="127.0.0.1")
        [listener] = await nursery.start(serve)
        port = listener.socket.getsockname()[1]
        with trio.fail_after(10), pytest.raises(PeerError, match=told):
            await open_sealed("127.0.0.1", port, trusting("distributor.pem"))
        nursery.cancel_scope.cancel()
