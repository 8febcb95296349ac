"""`python -m condvne`, as launchers of several processes need it."""

import sys

from condvne.cli import main

sys.exit(main())
