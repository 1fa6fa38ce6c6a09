"""Tables → sentences of lab 09: every claim is tested on the table before it is said."""
