"""What nodes of one limit put on the wire: frames as bytes, and sessions that authenticate them. Bytes in, bytes out.

May import ``limiting.replication`` and ``srtm``. ``codec`` has the frames. ``session`` has the handshake, and a MAC for
each message. ``cluster_key`` is what both sides must have. ``sealed_grants`` are made by it.
"""
