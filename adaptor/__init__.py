"""Policies that keep the split of a token bucket right while traffic moves. The modules come with a later release."""
