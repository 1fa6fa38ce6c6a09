"""Attention on paper: its arithmetic, its memory, and the online softmax tile by tile."""
