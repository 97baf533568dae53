"""What every service of the platform is: options, logging, supervised loops, shutdown, HTTP.

Nothing here knows an NPU, the kubelet or Kubernetes.
"""
