"""Envoy's rate limit service v3 as values and bytes: its messages, what they ask of contracts, and gRPC over HTTP/2.

Pure. May import ``srtm.contracts`` and ``srtm.limiting``. Begin with ``rate_limits``. Sockets are elsewhere.
"""
