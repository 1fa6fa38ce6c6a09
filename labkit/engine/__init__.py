"""A plan in, a table out: starts the node's workers, follows them, and brings their rows back."""
