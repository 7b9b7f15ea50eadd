"""The distributor's HTTP interface.

May import ``distributor.views``, ``distributor.jobs`` and what is below them. Begin with ``app``.
"""
