"""``python -m plugin doctor``: what is wrong with the NPU here, and what to do about it.

Runs in a container that was given an NPU, where it opens the device, or against a node's files,
where it looks at driver, kubelet and holders. Nothing is changed.
"""
