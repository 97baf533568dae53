"""The kubelet's wire contract: protos, the PodResources client, paths and limits.

Knows nothing of NPUs, of how services are run, or of the Kubernetes API.
"""
