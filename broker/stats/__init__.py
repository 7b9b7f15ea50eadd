"""Counters of a broker for people and monitoring: ``/stats``, statsd, Prometheus.

May import ``broker.config`` and ``broker.snapshot``. Begin with ``stats_json``.
"""
