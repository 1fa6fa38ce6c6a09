"""Tables of lab 07 → figures."""
