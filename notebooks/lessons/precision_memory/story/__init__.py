"""Tables of lab 07 → sentences."""
