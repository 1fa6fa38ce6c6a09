"""Tables of lab 05 → figures."""
