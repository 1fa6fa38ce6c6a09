"""Tables of lab 05 → sentences: every claim is tested on the table before it is said."""
