"""The custom resource definitions, made of the declarations in ``wire``: one model for laptop and Kubernetes.

``openapi.py`` makes a schema of a block, ``kinds.py`` says of each kind what only Kubernetes wants to know, with what
the operator reports in ``statuses.py``; ``definitions.py`` puts them together. ``python -m tidemill_operator.crds``
writes the files, which is what ``make crds`` does.
"""
