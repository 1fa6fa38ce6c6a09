"""Lab 16's workers: `steps` is what they run; `layers` can be imported alone, by a program with its own models."""
