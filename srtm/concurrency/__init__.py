"""Owns small tools that every service needs: background tasks (on trio), single failures, back-off, outage reports.

Imports nothing of ours. The client library, which needs no trio, uses ``failures`` and ``backoff``. Begin with
``background``.
"""
