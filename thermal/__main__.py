"""``python -m thermal``: the thermal guard, and its clean-up command."""

import sys

from thermal.main import main

if __name__ == "__main__":
    sys.exit(main())
