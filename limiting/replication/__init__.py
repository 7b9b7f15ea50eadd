"""How nodes hold one limit together: state machines without sockets or clocks. Time is a parameter.

May import ``srtm``. Begin with ``replicated`` (every node decides alone), then ``exact`` (the owner decides near the
limit) and ``auto`` (hot subjects have shares). ``refill``, ``levels``, ``link`` and ``node`` are what they stand on.
``windows`` has the counts of other policies, ``node_grants`` what makes a correction count once. ``gossiped`` has the
designs of the CRDT thesis, for comparison.

Levels are exact: a token is 1e15 units, as in ``srtm.token_bucket.bucket``. A subject is 16 bytes, a keyed hash.
"""
