"""The lessons, one folder each, named like its notebook."""
