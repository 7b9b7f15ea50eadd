"""Foreign clients and tools against our broker under the name ``nsqd``, and against the real nsqd for the baseline:
``make interop``.

``outcome`` (what a run gave, pure) <- ``suites`` (which suites there are, how they are fetched) <- ``__main__`` (runs
them, each in a network namespace of its own where that is allowed). Inside: ``go_nsq``, ``nsqjs``, ``pynsq_live`` and
``nsqadmin`` start what they need and print one JSON line of outcomes; ``processes`` is what they share.
"""
