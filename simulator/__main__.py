"""``python -m simulator``: play a board, or clean one away."""

import sys

from daemon import deferred
from daemon.startup import end_at_once_when_asked

if __name__ == "__main__":
    end_at_once_when_asked()
    deferred.install()
    from simulator.service import main

    sys.exit(main())
