"""What can be said of links and steps between nodes before anything runs."""
