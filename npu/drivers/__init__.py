"""One module per kernel interface; the table of them is :mod:`npu.registry`."""
