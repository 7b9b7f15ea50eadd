"""Measurements that brokers make for a loop: asked for, reported, checked. Begin with ``measurements``."""
