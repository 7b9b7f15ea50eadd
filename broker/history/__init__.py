"""Histories of arrivals that a broker reports to the distributor, for the adaptor.

May import ``broker.events`` and ``broker.runtime``. Begin with ``schedule``: what is reported when.
"""
