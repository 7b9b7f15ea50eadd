"""The sockets of a mesh: where peers are called, and where they are listened for; by TLS if it is asked for."""

from __future__ import annotations

import ssl
from pathlib import Path

import trio

from limiting.config import LimitConfig
from limiting.nodes.decisions import Nodes
from limiting.nodes.members import Members, read_members
from limiting.nodes.mesh import Mesh
from limiting.wire.cluster_key import MOST_BYTES, ClusterKey
from srtm.errors import BadInput
from srtm.net.address import format_address, parse_peer
from srtm.net.tls_trust import trusting
from srtm.web.serving import bound


def nodes_of(config: LimitConfig) -> Nodes | None:
    """The nodes that the settings name; None: this one alone. Raises BadInput."""
    if config.peers is None or config.node is None or config.cluster_key_file is None:
        return None
    members = read_members(config.node, config.peers)
    return Nodes(members, read_key(config.cluster_key_file), config.mode or "replicated", config.new_cluster)


def read_key(path: str) -> ClusterKey:
    """Read the cluster's key. Raises BadInput."""
    try:
        with Path(path).open("rb") as file:
            return ClusterKey(file.read(2 * MOST_BYTES))
    except OSError as error:
        raise BadInput("cluster_key_file", path, f"must be a file that can be read ({error.strerror})") from None


class Links:
    """Opens streams to peers, and accepts theirs."""

    def __init__(self, members: Members, config: LimitConfig) -> None:
        self._members = members
        self._address = config.peers_address or members.addresses[members.own]
        self._trust = self._shown = None
        if config.peers_ca is not None and config.tls_cert is not None:
            self._trust = trusting(config.peers_ca)
            self._shown = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._shown.load_cert_chain(config.tls_cert, config.tls_key)

    async def connect(self, name: str) -> trio.abc.Stream:
        """Connect to a node. Raises OSError, or trio.BrokenResourceError if TLS fails."""
        host, port = parse_peer("peers", self._members.addresses[name])
        stream = await trio.open_tcp_stream(host, port)
        if self._trust is None:
            return stream
        secured = trio.SSLStream(stream, self._trust, server_hostname=host, https_compatible=True)
        try:
            await secured.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(secured)
            raise
        return secured

    async def serve(self, mesh: Mesh, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen for peers until cancelled. Raises BadInput, Unavailable if that address cannot be."""
        with bound(self._address, "peers") as listener:
            task_status.started(format_address(*listener.getsockname()[:2]))
            sockets: trio.abc.Listener[trio.abc.Stream] = trio.SocketListener(trio.socket.from_stdlib_socket(listener))
            if self._shown is not None:
                sockets = trio.SSLListener(sockets, self._shown, https_compatible=True)
            await trio.serve_listeners(mesh.answer, [sockets])
