"""Tables of lab 11 → figures: memory, times, buckets, balance, stages, the report."""
