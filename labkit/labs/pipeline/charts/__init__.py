"""Tables of lab 03 → figures."""
