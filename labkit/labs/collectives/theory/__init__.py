"""How collectives work, with the standard library alone: what they send, and a ring's steps."""
