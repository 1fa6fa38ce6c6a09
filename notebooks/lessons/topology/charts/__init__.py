"""Tables of lab 01 → figures: copies beside their links, and the node as a map."""
