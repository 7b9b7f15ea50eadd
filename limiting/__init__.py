"""The limit service: contracts for any client, decided by one node or by many.

May import ``srtm``. Begin with ``service``; ``replication`` is how nodes share what each of them let through.
"""
