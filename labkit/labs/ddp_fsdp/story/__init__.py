"""Tables of lab 04 → sentences: every claim is tested on the table before it is said."""
