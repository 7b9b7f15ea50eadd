"""Owns HTTP, TLS, addresses and bearer tokens, for services and clients alike.

May import ``concurrency`` and ``control``. Begin with ``http_client``, or ``http_server`` for a service's routes.
"""
