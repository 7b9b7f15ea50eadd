"""What every measurement stands on: machine, systems under test, load, results, runs on a cluster.

Its packages import nothing of bench but each other. Begin with ``load.run``.
"""
