"""``python -m inference``: serve a model."""

import sys

from daemon import deferred
from daemon.startup import end_at_once_when_asked

if __name__ == "__main__":
    end_at_once_when_asked()
    deferred.install()
    from inference.service import main

    sys.exit(main())
