"""A report: what is known of its runs, where it lies, and its pages; `make run` and `make card` both write one.

record.py        what a report knows about its runs, kept as JSON so that pages can be rebuilt
kept_reports.py  earlier reports, kept by date
page.py          the style of its pages, and the frame of one that stands alone
node_lock.py     one unattended run at a time on a node
"""
