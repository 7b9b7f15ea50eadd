"""How many connections a listener has, and how many of them are of one address: nobody can shut out all others.

By the rules of the broker (docs/clients.md, "What one client may take").
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import trio

_OTHER_FILES = 128  # that a service has open beside its connections: its store, logs, and what it asks others


class Places:
    """Places for ``most`` connections, of which one address may take seven eighths."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of_one = -(-most // 8) * 7
        self._taken: Counter[str] = Counter()
        self.connections = 0

    @classmethod
    def by_descriptors(cls) -> Places:
        """As many as there are descriptors."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return cls(max(soft - _OTHER_FILES, 1) if soft != resource.RLIM_INFINITY else 1_000_000)

    @contextmanager
    def taken(self, host: str | None) -> Iterator[str | None]:
        """Take a place for a connection from ``host`` until the block ends; None: it has no address.

        Yields None, or why there is no place for it.
        """
        whose = _whose(host)
        if self.connections >= self._most:
            yield f"too many connections: there may be {self._most}"
        elif whose is not None and self._taken[whose] >= self._of_one:
            yield f"too many connections of {host}: there may be {self._of_one}"
        else:
            self.connections += 1
            if whose is not None:
                self._taken[whose] += 1
            try:
                yield None
            finally:
                self.connections -= 1
                if whose is not None:
                    self._taken[whose] -= 1
                    if not self._taken[whose]:
                        del self._taken[whose]


def host_of(stream: trio.abc.Stream) -> str | None:
    """The address of a connection's peer. None: it has none, or is gone."""
    transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
    if not isinstance(transport, trio.SocketStream):
        return None
    try:
        return str(transport.socket.getpeername()[0])
    except (OSError, IndexError):  # gone; a Unix socket
        return None


def _whose(host: str | None) -> str | None:
    """Who is behind an address, as far as it tells: of IPv6 the network, since anybody has all of its addresses."""
    if host is None:
        return None
    address = ipaddress.ip_address(host)
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
