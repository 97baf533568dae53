"""Build of the container images: no daemon, no root, the same bytes from the same inputs.

``python -m images build`` lays signed Debian packages, hash-pinned wheels and the project's own
packages into layers and writes OCI archives. ``size`` holds them to the budget of a node,
``verify`` runs what is in them, ``lock`` pins newer Debian packages.
"""
