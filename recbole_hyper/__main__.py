"""``python -m recbole_hyper`` is ``recbole-hyper``."""

import os
import sys
import threading

from recbole_hyper.cli import main


def _end_with_input() -> None:
    """End this process when its standard input closes: the pipe of a parent that ended, even by a SIGKILL."""
    while os.read(0, 1024):
        pass
    os._exit(1)


# set by a parent whose runs must not outlive it
if os.environ.pop("RECBOLE_HYPER_ENDS_WITH_INPUT", ""):
    threading.Thread(target=_end_with_input, daemon=True).start()
sys.exit(main())
