"""Lab 10's workers: `points` is what they run; the replicas can be imported alone, by a program with its own models."""
