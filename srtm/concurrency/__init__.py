"""Owns small tools on trio that every service needs: background tasks, back-off, outage reports.

Imports nothing of ours. Begin with ``background``.
"""
