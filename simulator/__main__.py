"""``python -m simulator``: play a board, or clean one away."""

import sys

from simulator.service import main

if __name__ == "__main__":
    sys.exit(main())
