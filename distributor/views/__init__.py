"""What clients and operators see of topics and brokers: JSON types that are the OpenAPI schemas, and metrics.

May import ``distributor.sync`` and what is below it. Begin with ``topic_view``.
"""
