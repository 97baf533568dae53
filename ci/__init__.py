"""Development side of the platform: embedded cluster, tools, linters, release scripts."""
