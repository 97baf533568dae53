"""Benchmarks against the peers of the field, in one run on one machine."""
