"""Nodes of limit services find each other here: each tells where it listens, and is told where the others do.

What they tell is kept in memory: each repeats it every few seconds, so another distributor soon knows it too.
"""

from __future__ import annotations

from fastapi import FastAPI, Response

from srtm.errors import BadInput
from srtm.net.address import format_address, parse_peer
from srtm.web.bodies import json_answer

MOST_NODES = 64  # of a cluster: each is linked with each
MOST_CLUSTERS = 1_000
_LONGEST_NAME = 64


def add_limit_node_routes(app: FastAPI) -> None:
    clusters: dict[str, dict[str, str]] = {}

    @app.put("/v1/limit-nodes/{cluster}/{name}")
    async def tell_limit_node(cluster: str, name: str, address: str) -> Response:
        """For a node of a limit service: it listens for others at `address`. Returns the addresses of all by name."""
        for field, value in (("cluster", cluster), ("name", name)):
            if len(value) > _LONGEST_NAME:
                raise BadInput(field, value[:_LONGEST_NAME], f"must have at most {_LONGEST_NAME} characters")
        known = clusters.get(cluster, {})
        after = {**known, name: format_address(*parse_peer("address", address))}
        if len(after) > MOST_NODES:
            raise BadInput("name", name, f"must be one of at most {MOST_NODES} nodes: DELETE those that are gone")
        if cluster not in clusters and len(clusters) >= MOST_CLUSTERS:
            raise BadInput("cluster", cluster, f"must be one of at most {MOST_CLUSTERS}: DELETE the nodes of others")
        clusters[cluster] = after
        return json_answer(after)

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
        """The nodes of limit services that have told where they are, by cluster: addresses by name."""
        return json_answer(clusters)
