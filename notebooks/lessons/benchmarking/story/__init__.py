"""Tables of lab 06 → sentences."""
