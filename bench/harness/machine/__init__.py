"""The machine underneath: processors, namespaces, links, open files, and the checkouts that are built on it.

It imports no other package of bench. Begin with ``host``.
"""
