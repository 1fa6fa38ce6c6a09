"""Tables of lab 13 → sentences: every claim is tested on the table before it is said."""
