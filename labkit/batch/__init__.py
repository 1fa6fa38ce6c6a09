"""Runs the notebooks unattended on this machine and writes one report (`python -m labkit.batch`, `make run`).

__main__.py   the command line: which notebooks, which parameters, where the report goes
run.py        the notebooks of one call, one after the other, and the card at their end
turn.py       one unattended run at a time on a node
resume.py     what is done with the same code and parameters; the time that the rest will take
execute.py    one notebook → its executed copy and an Outcome; the kernel is this interpreter
pages.py      an executed notebook → one HTML page that needs no network
frame.py      the frame and the style of all other pages
glossary.py   the report's copy of the glossary
claims.py     the page of published claims
index.py      outcomes and the node's card → the report's first page
publish.py    writes all of these
keep.py       earlier reports, kept by date
record.py     what a report knows about its runs, kept as JSON so that pages can be rebuilt
"""
