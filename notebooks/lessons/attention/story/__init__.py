"""Tables of lab 08 → sentences: what grows and what cannot, who wins where, and what a report's tables say."""
