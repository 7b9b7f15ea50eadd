"""Which distributor leads, and what it serves while it leads or stands by.

May import: all other packages of the distributor. Begin with ``roles``.
"""
