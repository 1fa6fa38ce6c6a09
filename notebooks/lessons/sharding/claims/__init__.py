"""Claims of the study of GPT-2 Large on two H100s: what it holds, how fast it is, what its profile shows."""
