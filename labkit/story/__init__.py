"""Words and units, and the sentences that several labs say.

words.py       sentences made of claims that were tested on the table
verdict.py     what a section, and a page, ends with
units.py       three significant digits and a unit that fits
names.py       what strategies are called
claims.py      claims of reports as a reader sees them
conditions.py  the conditions of a run
profile.py     what an account of a step leaves open
nodes.py       what the links between nodes can carry
"""
