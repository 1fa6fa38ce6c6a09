"""Tables of lab 11 → sentences, each tested on its table before it is said."""
