"""The deterministic simulator: a whole cluster in one Python process, replayed from one number.

``loop`` is time, order and the life of nodes; ``network`` and ``transport`` are TCP; ``disk`` is what survives;
``faults`` are data; ``world`` puts nodes, faults and phases together; ``checkers`` judge the history; ``runner`` is
the command line (``python -m sim``); ``crashpoints`` is the tier without a loop. A seed is valid for one commit, one
Python minor and one set of dependencies; the runner prints all three.
"""
