"""Owns what services with an ASGI application share: serving it, bounded bodies, refusals as problem+json, pages.

May import ``concurrency``, ``control`` and ``net``. Begin with ``serving``.
"""
