"""Experiments: one module for each figure or table of their own."""
