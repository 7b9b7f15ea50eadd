"""What the operators' page shows: rows of topics and brokers, latency over the last 15 minutes, events as they happen.

May import: registry, sync, verdict, views, srtm. Begin with ``observer``; ``static`` is the page itself, in a browser.
"""
