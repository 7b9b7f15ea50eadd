"""One limit on several nodes, in the service: which nodes there are, links between them, and each contract's machine.

May import ``limiting.replication``, ``limiting.wire`` and ``srtm``. ``members`` has the list of nodes, ``mesh`` the
links over TCP, ``group`` one contract on all nodes, ``decisions`` the groups beside the limiter of this process.
``corrections`` changes afterwards what checks took. ``due_groups`` says when which group has something to tell,
``owner_answers`` has the checks that wait for another node.
"""
