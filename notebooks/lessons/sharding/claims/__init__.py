"""Claims of a study of GPT-2 Large on two H100s: of memory, of speed, and of its profile, recomputed."""
