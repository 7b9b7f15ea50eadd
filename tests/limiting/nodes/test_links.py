"""Links between nodes over real sockets, by TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import trio

from limiting.config import LimitConfig
from limiting.nodes.decisions import Decisions, Nodes
from limiting.nodes.links import Links, nodes_of
from limiting.nodes.mesh import Mesh
from srtm.contracts.contract import read_contract
from srtm.errors import BadInput
from srtm.limiting.limiter import Limiter
from tests.support.ports import free_port

pytestmark = pytest.mark.slow
CERTIFICATES = Path(__file__).parent.parent.parent / "certificates"
CONTRACT = {"namespace": "api", "subject": "*", "policies": [{"name": "burst", "rate": 0.001, "burst": 12}]}


class Echo:
    """Answers a connection with what it says."""

    async def answer(self, stream: trio.abc.Stream) -> None:
        try:
            async for data in cast(Any, stream):
                await stream.send_all(data)
        except trio.BrokenResourceError:
            pass


def config(node: str, peers: str, key: Path, shown: str = "distributor.pem", trusted: str | None = None) -> LimitConfig:
    files: dict[str, Any] = {"tls_cert": str(CERTIFICATES / shown), "tls_key": str(CERTIFICATES / "distributor.key")}
    ca = str(CERTIFICATES / (trusted or shown))
    return LimitConfig(node=node, peers=peers, cluster_key_file=str(key), peers_ca=ca, **files)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    file = tmp_path / "cluster.key"
    file.write_text("k" * 32)
    return file


@pytest.fixture
def peers() -> str:
    return f"a=127.0.0.1:{free_port()},b=127.0.0.1:{free_port()}"


def links(settings: LimitConfig) -> tuple[Links, Nodes]:
    nodes = nodes_of(settings)
    assert nodes is not None
    return Links(nodes.members, settings), nodes


async def test_nodes_hold_a_contract_together_over_tls(key: Path, peers: str) -> None:
    running: dict[str, Decisions] = {}
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for name in "ab":
                own, nodes = links(config(name, peers, key))
                decisions = running[name] = Decisions(Limiter(), nodes._replace(first=True), own.connect)
                assert decisions.mesh is not None
                decisions.put(read_contract(CONTRACT))
                await nursery.start(own.serve, decisions.mesh)
                nursery.start_soon(decisions.run)
            while not all(state.connected for node in running.values() for state in node.states()):  # noqa: ASYNC110
                await trio.sleep(0.01)
            while not (await running["a"].check("api", ["user"], 9)).allowed:  # noqa: ASYNC110 - until both have greeted
                await trio.sleep(0.01)
            while (await running["b"].peek("api", "user", 4)).allowed:  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert (await running["b"].check("api", ["user"], 3)).allowed
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("shown", "trusted"),
    [("distributor.pem", "authority.pem"), ("distributor-expired.pem", "distributor-expired.pem")],
)
async def test_a_node_whose_certificate_cannot_be_trusted_is_not_linked(
    key: Path, peers: str, shown: str, trusted: str
) -> None:
    called, _ = links(config("b", peers, key, shown))
    calling, _ = links(config("a", peers, key, trusted=trusted))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(called.serve, cast(Mesh, Echo()))
            with pytest.raises(trio.BrokenResourceError):
                await calling.connect("b")
            nursery.cancel_scope.cancel()


async def test_nothing_is_said_in_clear_where_tls_is_asked_for(key: Path, peers: str) -> None:
    called, nodes = links(config("b", peers, key))
    host, _, port = nodes.members.addresses["b"].rpartition(":")
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            await nursery.start(called.serve, cast(Mesh, Echo()))
            own, _ = links(config("a", peers, key))
            secured = await own.connect("b")
            await secured.send_all(b"secret")
            assert await secured.receive_some(100) == b"secret"
            plain = await trio.open_tcp_stream(host, int(port))
            await plain.send_all(b"secret")
            assert b"secret" not in await plain.receive_some(100), "an alert of TLS, or the end"
            for stream in (secured, plain):
                await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()


def test_an_authority_that_is_none_is_refused(tmp_path: Path, key: Path, peers: str) -> None:
    (tmp_path / "ca.pem").write_text("none")
    with pytest.raises(BadInput, match="ca_file"):
        links(config("a", peers, key, trusted=str(tmp_path / "ca.pem")))
