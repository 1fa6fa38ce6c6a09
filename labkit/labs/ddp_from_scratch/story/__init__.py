"""Tables of lab 10 → sentences: every claim is tested on the table before it is said."""
