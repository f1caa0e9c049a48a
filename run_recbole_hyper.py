"""``python run_recbole_hyper.py --model=HSASRecCE --dataset=ml-100k [--key=value ...]``."""

import sys

from recbole_hyper.cli import main

if __name__ == "__main__":
    sys.exit(main(["run", *sys.argv[1:]]))
