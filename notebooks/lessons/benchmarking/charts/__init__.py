"""Tables of lab 06 → figures: steps, launches, profiles."""
