"""The load distributor: which broker a publisher goes to, and which share of the token bucket each broker holds.

Reading order. Pure: ``allocation`` (with ``spreading``) places publishers, ``leases`` moves shares, ``state`` holds
what is known, ``placing`` and ``transitions`` join them, ``desired`` is what a broker is told; ``fitting`` measures
whether a layout keeps the promise and finds one that does (``verdict`` decides; ``whatif``, ``model`` and ``search``,
with ``keeping``, look ahead; ``moves`` leads there; ``marks`` remembers who is full; ``fitting_events`` is what it says
and hears, ``measured`` the same as messages); ``paper_fitting`` is the baseline.
Around it: ``registry`` is the book and the only place that changes it, ``records`` and ``store`` keep it, ``syncing``
talks with brokers, ``histories`` keeps for a moment what came to topics, ``views``, ``lookups`` and ``metrics`` show
it, ``api`` is HTTP, ``service`` runs it all.
"""
