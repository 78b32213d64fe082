"""Numbers to watch, as they are said to Prometheus: one table of all of them, and the page that a service writes.

A service can only say what is in the table (``page.py``), so ``docs/metrics.md``, which is made of it, has all there
is. Every label has a bound: its values are a closed list, or the most prominent ones and ``other``.
"""
