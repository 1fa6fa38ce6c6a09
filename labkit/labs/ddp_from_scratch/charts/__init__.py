"""Steps by implementation, buckets against backward, the sweep over sizes, and what a report printed, as pictures."""
