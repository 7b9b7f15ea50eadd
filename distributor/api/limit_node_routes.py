"""Nodes of limit services find each other here: each tells where it listens, and is told where the others do. It may
tell where its page for operators is, too.

What they tell is kept in memory: each repeats it every few seconds, so another distributor soon knows it too.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec
from fastapi import FastAPI, Response

from srtm.errors import BadInput
from srtm.net.address import format_address, parse_peer
from srtm.web.bodies import json_answer

MOST_NODES = 64  # of a cluster: each is linked with each
MOST_CLUSTERS = 1_000
_LONGEST_NAME = 64
_LONGEST_PAGE = 300


class LimitNode(msgspec.Struct, frozen=True):
    """A node of a limit service."""

    address: str  # where its peers reach it, HOST:PORT
    page: str | None  # where browsers reach its page, a URL; None: it did not say


def add_limit_node_routes(app: FastAPI) -> None:
    clusters: dict[str, dict[str, LimitNode]] = {}

    @app.put("/v1/limit-nodes/{cluster}/{name}")
    async def tell_limit_node(cluster: str, name: str, address: str, page: str | None = None) -> Response:
        """For a node of a limit service: it listens for others at `address`, and serves its page at the URL `page`.
        Returns the addresses of all by name."""
        for field, value in (("cluster", cluster), ("name", name)):
            if len(value) > _LONGEST_NAME:
                raise BadInput(field, value[:_LONGEST_NAME], f"must have at most {_LONGEST_NAME} characters")
        known = clusters.get(cluster, {})
        told = LimitNode(format_address(*parse_peer("address", address)), None if page is None else _checked(page))
        after = {**known, name: told}
        if len(after) > MOST_NODES:
            raise BadInput("name", name, f"must be one of at most {MOST_NODES} nodes: DELETE those that are gone")
        if cluster not in clusters and len(clusters) >= MOST_CLUSTERS:
            raise BadInput("cluster", cluster, f"must be one of at most {MOST_CLUSTERS}: DELETE the nodes of others")
        clusters[cluster] = after
        return json_answer({each: node.address for each, node in after.items()})

    @app.delete("/v1/limit-nodes/{cluster}/{name}", status_code=204)
    async def forget_limit_node(cluster: str, name: str) -> Response:
        """Forget a node of a limit service that is gone for good."""
        known = clusters.get(cluster, {})
        known.pop(name, None)
        if not known:
            clusters.pop(cluster, None)
        return Response(status_code=204)

    @app.get("/v1/limit-nodes")
    async def limit_nodes() -> Response:
        """The nodes of limit services that have told where they are, by cluster and name."""
        return json_answer(clusters)


def _checked(page: str) -> str:
    """The URL of a page, which others are shown as a link. Raises BadInput."""
    try:
        scheme, host, path, query, fragment = urlsplit(page)
    except ValueError:
        scheme, host, path, query, fragment = "", "", "", "", ""
    is_plain = path in ("", "/") and not (query or fragment or "@" in host)
    if scheme not in ("http", "https") or not is_plain or len(page) > _LONGEST_PAGE:
        rule = f"must be http://HOST:PORT/ or https://HOST:PORT/, at most {_LONGEST_PAGE} characters"
        raise BadInput("page", page[:_LONGEST_PAGE], rule)
    return f"{scheme}://{format_address(*parse_peer('page', host))}/"
