"""The adaptor: keeps the split of topics right while their traffic shifts.

May import ``srtm``. Begin with ``service``: histories come from ``distributor_feed``, ``topics`` keeps what they say,
``policy`` asks one of ``policies`` for shares. ``gdrl`` is run by brokers.
"""
