"""Sample inference service: a model on an NPU behind HTTP, with a bounded queue and metrics.

It is a program to start from: what stands between a model and a cluster is here, what a model needs
before and after (decoding pictures, boxes) is not.
"""
