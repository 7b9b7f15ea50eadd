"""Several real nodes or brokers that hold one limit: their processes, links that can be cut, clients, and a checker.

May import everything. ``merged`` is pure: it judges the decisions of all nodes together.
"""
