"""What can be said before anything runs: how floats are spaced and summed, and what a training step holds."""
