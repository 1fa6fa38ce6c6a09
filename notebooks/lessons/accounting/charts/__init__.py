"""Tables → figures of lab 12."""
