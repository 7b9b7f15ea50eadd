"""Which publisher goes to which broker (the paper's steps 1 and 2), and which share each broker is to have.

May import: model, srtm. Begin with ``planner`` (a topic to a placement), then ``allocation`` (step 1) and ``quotas``
(step 2, max-min). ``share_targets`` makes share targets of a placement.
"""
