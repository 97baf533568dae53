"""The board simulator: a daemon that plays an NPU board in a directory.

It writes the files of a board of the catalogue and keeps load, temperature, clock and power moving
as a real one would, driven by what the kubelet has allocated and by a control file. It never runs
where a real NPU is found, and everything it writes is marked as simulated.
"""
