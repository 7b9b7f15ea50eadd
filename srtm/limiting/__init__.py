"""Owns limits inside a program: a limiter of contracts, answers for HTTP, and middleware for ASGI and WSGI.

May import ``contracts`` and the extension. Begin with ``limiter``.
"""
