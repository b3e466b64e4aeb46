"""`python -m longhaul module:app`: the command `longhaul-worker`."""

import sys

from longhaul.worker.cli import main

if __name__ == "__main__":
    sys.exit(main())
