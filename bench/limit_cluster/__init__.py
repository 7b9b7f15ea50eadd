"""A limit service of several real nodes: their processes, links that can be cut, clients, and a checker of decisions.

May import everything. ``merged`` is pure: it judges the decisions of all nodes together.
"""
