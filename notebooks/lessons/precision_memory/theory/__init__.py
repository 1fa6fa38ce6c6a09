"""What can be said before anything runs: how floats are spaced and summed, and levers on a step's memory."""
