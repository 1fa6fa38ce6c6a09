"""Tables of lab 13 → figures."""
