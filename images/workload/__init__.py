"""The sample workload; its image holds nothing but ``sample.py`` and the interpreter."""
