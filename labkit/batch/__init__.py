"""Runs the notebooks unattended on this machine and writes one report (`python -m labkit.batch`, `make run`).

__main__.py   the command line: which notebooks, which parameters, where the report goes
run.py        the notebooks of one call, one after the other, and the card at their end
resume.py     what is done with the same code and parameters; the time that the rest will take
execute.py    one notebook → its executed copy and an Outcome; the kernel is this interpreter
publish.py    makes a report's pages say what its record says
sources.py    what they say, as Markdown and notebooks: an executed notebook, the first page, the claims
site.py       Markdown and notebooks → a folder of HTML that needs no network, by Sphinx; theme/ is our part of its look
store.py      stores what nbval compares
book.py       the stored pages as a book, for those who have no node; the command `make book`

It builds on labkit.report and labkit.card, and neither of them on it.
"""
