"""The load distributor: which broker a publisher goes to, and which share of the token bucket each broker holds."""
