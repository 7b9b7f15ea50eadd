"""The load distributor: which broker a publisher connects to, and which share of the token bucket each broker holds.

May import ``srtm``. Begin with ``service``. Its packages, lowest first: ``model`` (values), ``placement`` (which
publisher where, which share for whom), ``prediction`` (what a layout would do), ``fitting`` (the layout loop),
``verdict`` (is the promise kept, and what makes a topic late), ``storage`` (SQL), ``registry`` (the authoritative
state), ``measuring`` (what brokers are to measure), ``sync`` (the conversation with brokers), ``jobs`` (what runs while
this one leads), ``views`` (JSON for people), ``page`` (the same in a browser), ``api`` (HTTP), ``leadership`` (who
leads).
"""
