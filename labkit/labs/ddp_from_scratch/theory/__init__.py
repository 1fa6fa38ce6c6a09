"""Lab 10, the models behind it."""
