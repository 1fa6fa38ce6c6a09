"""Grading: answers of students, each tried in a confined process with cases of its own, judged outside of it."""
