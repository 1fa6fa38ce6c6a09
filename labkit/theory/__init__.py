"""What can be said before anything runs, for more than one lab: shapes, ledgers, traffic, lines, models."""
