"""Lab 11, the models behind it: who owns which elements, what a rank holds, what an update moves."""
