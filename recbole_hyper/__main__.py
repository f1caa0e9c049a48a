"""``python -m recbole_hyper`` is ``recbole-hyper``."""

import sys

from recbole_hyper.cli import main

sys.exit(main())
