"""The nodes of one limit: ``NAME=HOST:PORT,...``, the same list at each of them."""

from __future__ import annotations

import re
from typing import NamedTuple

from limiting.wire.cluster_key import number_of
from srtm.errors import BadInput
from srtm.net.address import format_address, parse_peer

MOST_NODES = 64  # each is linked with each
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class Members(NamedTuple):
    """``own``: this node's name; ``addresses``: HOST:PORT of all nodes by name."""

    own: str
    addresses: dict[str, str]

    @property
    def numbers(self) -> dict[int, str]:
        """The other nodes by their numbers."""
        return {number_of(name): name for name in self.addresses if name != self.own}


def read_members(node: str, peers: str) -> Members:
    """Read the list of all nodes, of which ``node`` is one. Raises BadInput."""
    addresses: dict[str, str] = {}
    for part in peers.split(","):
        name, equals, address = part.strip().partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise BadInput("peers", part, "must be NAME=HOST:PORT of every node, separated by commas")
        if name in addresses:
            raise BadInput("peers", name, "must not be the name of two nodes")
        addresses[name] = format_address(*parse_peer("peers", address))
    if node not in addresses:
        raise BadInput("node", node, f"must be one of peers: {', '.join(addresses)}")
    if not 2 <= len(addresses) <= MOST_NODES:
        raise BadInput("peers", len(addresses), f"must be 2 to {MOST_NODES} nodes, this one included")
    if len({number_of(name) for name in addresses}) < len(addresses):
        raise BadInput("peers", peers, "two names have the same hash: rename one of them")
    return Members(node, addresses)
