"""The same scripted sessions against the real nsqd 1.3.0 and against ``srtm nsqd``, answers compared one by one:
``python -m tests.interop.drop_in``, a part of ``make interop``.

``transcript`` (what was answered, without what must differ) and ``comparison`` (what differs, what is meant to) are
pure; ``kept`` lists what is meant to, by name. ``node`` is a broker's process, ``client`` and ``web`` talk to it by TCP
and HTTP (``snappy_frames``: a codec), ``auth_server`` answers its questions. ``session`` is what a session gets; the
sessions themselves are in the modules of ``sessions``.
"""
