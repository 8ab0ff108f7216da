"""``python -m bridge``."""

import sys

from bridge.cli import main

if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # tokens are UTF-8 whatever the locale says
    sys.exit(main())
