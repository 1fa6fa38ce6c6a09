"""Tables of lab 08 → sentences: every claim is tested on the table before it is said."""
