"""Tables → sentences of lab 12."""
