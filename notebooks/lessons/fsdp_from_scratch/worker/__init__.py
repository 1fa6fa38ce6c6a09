"""Lab 15's workers: `steps` is what they run; `units` can be imported alone, by a program with its own models."""
