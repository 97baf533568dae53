"""``python -m thermal``: the thermal guard, and its clean-up command."""

import sys

from daemon.startup import end_at_once_when_asked

if __name__ == "__main__":
    end_at_once_when_asked()
    from thermal.main import main

    sys.exit(main())
