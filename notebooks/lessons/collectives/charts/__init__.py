"""Tables → figures of lab 09."""
