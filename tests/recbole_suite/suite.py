"""RecBole's own test suite after ``import recbole_hyper``: ``python suite.py FOLDER [pytest arguments]``.

FOLDER is the folder ``tests`` of RecBole's repository at v1.2; nothing is fetched. The suite runs in an empty folder in
which it is found as ``tests``, as its own paths expect. exceptions.yaml lists what it is known not to pass.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import recbole_hyper  # noqa: F401  RecBole runs on what is installed

EXCEPTIONS = yaml.safe_load((Path(__file__).parent / "exceptions.yaml").read_text(encoding="utf-8"))
# as the suite's own run.sh calls it: it is a script, and no test that pytest would find
COMMAND_LINE = (
    *(
        "tests/config/test_command_line.py",
        "--use_gpu=False",
        "--valid_metric=Recall@10",
        "--split_ratio=[0.7,0.2,0.1]",
    ),
    *('--metrics=["Recall"]', "--topk=[10]", "--epochs=200", "--eval_setting=LO_RS", "--learning_rate=0.3"),
)
SCRIPT = "import sys, runpy, recbole_hyper; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


class Known:
    """Marks the tests of exceptions.yaml: a failure is expected there, and a pass is a mistake of the list."""

    def __init__(self) -> None:
        self.unseen = {*EXCEPTIONS["fails"], *EXCEPTIONS["needs"]}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Mark what is known."""
        for item in items:
            name = item.nodeid.split("/", 1)[-1].replace("::", "/")
            if reason := EXCEPTIONS["fails"].get(name):
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
            packages = EXCEPTIONS["needs"].get(name, [])
            if missing := [package for package in packages if importlib.util.find_spec(package) is None]:
                item.add_marker(pytest.mark.skip(reason=f"needs {', '.join(missing)}, which is not installed"))
            self.unseen.discard(name)


def main(folder: str, *arguments: str) -> int:
    """Run the suite in ``folder``; returns 0 where nothing fails but what is known to."""
    tests = Path(folder).resolve()
    if not (tests / "test_data").is_dir():
        print(f"{tests} is not the folder tests of RecBole's repository: it holds no test_data", file=sys.stderr)
        return 2
    known = Known()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        Path("tests").symlink_to(tests)
        # RecBole reads the command line, which is pytest's here
        sys.argv = sys.argv[:1]
        whole = not any(word.startswith("tests") for word in arguments)
        common = ["-c", os.devnull, "--rootdir", place, "-p", "no:cacheprovider", "-rfExs"]
        status = int(pytest.main([*common, *arguments, *(["tests"] if whole else [])], plugins=[known]))
        if whole:
            done = subprocess.run([sys.executable, "-c", SCRIPT, *COMMAND_LINE], capture_output=True, text=True)
            print(f"{COMMAND_LINE[0]}: {'passed' if not done.returncode else done.stderr}")
            status = status or done.returncode
            if known.unseen:
                print(f"exceptions.yaml names what is not there: {', '.join(sorted(known.unseen))}")
                status = status or 1
        os.chdir("/")
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
