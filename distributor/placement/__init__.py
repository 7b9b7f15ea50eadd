"""Which publisher goes to which broker, and which share each broker is to have.

May import: model, srtm. Begin with ``planner`` (a topic to a placement) and ``shares`` (a placement to share targets).
"""
