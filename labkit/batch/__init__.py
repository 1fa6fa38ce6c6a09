"""Runs the notebooks unattended on this machine and writes one report (`python -m labkit.batch`, `make run`).

__main__.py   the command line: which notebooks, which parameters, where the report goes
run.py        the notebooks of one call, one after the other, and the card at their end
resume.py     what is done with the same code and parameters; the time that the rest will take
execute.py    one notebook → its executed copy and an Outcome; the kernel is this interpreter
pages.py      an executed notebook → one HTML page that needs no network; the glossary beside it
publish.py    writes all pages of a report, that of published claims included
store.py      stores what nbval compares

It builds on labkit.report and labkit.card, and neither of them on it.
"""
