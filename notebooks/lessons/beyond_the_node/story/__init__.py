"""Tables → sentences of lab 14."""
