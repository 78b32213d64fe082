"""The rules of the house as functions: a source in, complaints out.

``tree`` reads the working tree; ``shape`` has the limits, ``rooms`` who may know whom, ``manners`` what code and tests
may do, ``words`` what may be written, ``lists`` what must be equal in two places. Each complaint says where and what
to do. ``tests/test_tidy.py`` runs them on the tree, ``tests/test_tidy_teeth.py`` on code that breaks them.
"""
