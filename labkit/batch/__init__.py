"""Runs the notebooks unattended on this machine and writes one report (`python -m labkit.batch`, `make run`).

__main__.py   the command line: which notebooks, which parameters, where the report goes
execute.py    one notebook → its executed copy and an Outcome; the kernel is this interpreter
pages.py      an executed notebook → one HTML page that needs no network
index.py      outcomes → the report's first page
record.py     what a report knows about its runs, kept as JSON so that pages can be rebuilt
"""
