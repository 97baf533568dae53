"""``kubectl npu``: NPUs of a cluster for the people who use and run it, with their own rights.

Stands alone: nothing of the platform's services is imported, and nothing but Python's standard
library is needed. With ``rich`` installed, tables are coloured and fit the terminal.
"""
