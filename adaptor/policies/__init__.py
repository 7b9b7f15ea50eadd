"""Policies: the shares that a topic's traffic asks for. Pure.

May import ``adaptor.observations``. Begin with ``fitted``. Brokers import ``rate_estimate``: no numpy there.
"""
