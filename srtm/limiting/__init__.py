"""Owns limits inside a program: a limiter of contracts, middleware, and the headers and problems of answers.

May import ``contracts``, ``client`` and the extension. Begin with ``answers``; ``limiter`` is the core.
"""
