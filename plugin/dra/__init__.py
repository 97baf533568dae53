"""The driver of Dynamic Resource Allocation: the same board, offered to the kubelet by claims.

``pools``, ``prepared``, ``preparing`` and ``handover`` know nothing of gRPC; ``servicer``,
``server`` and ``drivers`` are the kubelet's side.
"""
