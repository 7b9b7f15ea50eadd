"""The rows of issue 3's table, a module each: a claim, what measures a round, what must be reached."""
