"""`python -m polymodel`."""

from __future__ import annotations

import sys

from polymodel.cli.app import main

sys.exit(main())
