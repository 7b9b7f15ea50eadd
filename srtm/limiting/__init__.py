"""Owns limits inside a program: a limiter of contracts, and the headers and problems of answers.

May import ``contracts`` and the extension. Begin with ``limiter``.
"""
