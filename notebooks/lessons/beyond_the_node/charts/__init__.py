"""Tables → figures of lab 14."""
