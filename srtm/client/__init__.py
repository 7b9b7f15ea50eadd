"""Owns the client library: publishers and subscribers over NSQ, and the HTTP clients of the distributor and brokers.

May import ``net``, ``concurrency``, ``control`` and ``protocol``; no numpy, pydantic, typer, rich or engine. Begin with
``publisher``; ``connection`` is one NSQ connection.
"""
