"""Tables → figures of lab 08."""
