"""Policies that keep the split of a token bucket right while traffic moves. Pure but for the service."""
