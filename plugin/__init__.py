"""Device plugin daemon: offers the board's NPUs to the kubelet.

Two halves. The board-facing one (``config``, ``devices``, ``health``, ``allocation``, ``board``,
``holders``) says which devices there are, how they are, who holds them and what a container gets;
it knows nothing of the kubelet's device plugin API. The other one (``servicer``, ``server``,
``registration``, ``manager``) translates that into v1beta1.
"""
