"""Policies: the shares that a topic's traffic asks for. Pure.

May import ``adaptor.observations`` and ``srtm.token_bucket``. Begin with ``proportional``, then ``fitted``.
"""
