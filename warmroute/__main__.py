"""``python -m warmroute`` is the command ``warmroute``."""

import sys

from warmroute.cli import main

if __name__ == "__main__":
    sys.exit(main())
