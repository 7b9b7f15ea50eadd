"""The conversation with brokers: checked reports in, the desired state out, histories for the adaptor.

May import ``distributor.registry`` and what is below it. Begin with ``service``, then ``sessions``.
"""
