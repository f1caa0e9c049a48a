"""The files of examples/ for a shop: the compose file, the cron line and the loader into PostgreSQL."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
import yaml

from recbole_hyper.cli import _parse

EXAMPLES = Path(__file__).parents[2] / "examples"


def binaries() -> Path | None:
    """The folder of Debian's PostgreSQL."""
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)), None)


@pytest.fixture(scope="module")
def database() -> Iterator[dict[str, str]]:
    """The environment of a separate server with a database "shop", on a socket in a folder, without a port."""
    initdb = binaries()
    if initdb is None or os.geteuid() != 0 or not shutil.which("runuser") or not shutil.which("psql"):
        pytest.skip("Debian's postgresql, and root to become its user, are needed")
    # not below pytest's own folder, which is closed to other users
    place = Path(tempfile.mkdtemp(prefix="shop-postgres-"))
    place.chmod(0o777)
    data, own = place / "data", ["runuser", "-u", "postgres", "--"]

    def call(*words: str) -> None:
        subprocess.run([*own, *words], check=True, capture_output=True, cwd=place)

    call(str(initdb), "--auth=trust", "--no-sync", f"--pgdata={data}")
    control, options = str(initdb.with_name("pg_ctl")), f"-k {place} -c listen_addresses= -c fsync=off"
    call(control, "start", "--wait", f"--pgdata={data}", f"--options={options}", f"--log={place / 'log'}")
    environment = {**os.environ, "PGHOST": str(place), "PGUSER": "postgres"}
    try:
        subprocess.run(["createdb", "shop"], check=True, env=environment)
        yield environment
    finally:
        call(control, "stop", "--mode=immediate", f"--pgdata={data}")
        shutil.rmtree(place)


def rows_of(environment: dict[str, str]) -> pd.DataFrame:
    query = "COPY (SELECT * FROM recommendations ORDER BY user_id, position) TO STDOUT WITH (FORMAT csv, HEADER true)"
    done = subprocess.run(["psql", "-c", query, "shop"], capture_output=True, text=True, check=True, env=environment)
    return pd.read_csv(StringIO(done.stdout))


@pytest.mark.slow
def test_the_cron_line_recommends_and_loads(folder: Path, tmp_path: Path, database: dict[str, str]) -> None:
    line = (EXAMPLES / "crontab").read_text().splitlines()[-1]
    fields = re.match(r"((?:[\d*/,-]+ ){5})(.*)", line)
    assert fields is not None
    assert "%" not in fields[2]  # cron takes it for the end of the line
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "current").symlink_to(folder)
    shutil.copy(EXAMPLES / "load_postgres.sql", tmp_path)
    items = [f"i{item}" for item in range(12)]
    pd.DataFrame({"item_id": items, "stock": [1] * 6 + [0] * 6}).to_csv(tmp_path / "catalogue.csv", index=False)
    command = fields[2].replace("/srv/shop", str(tmp_path)).replace("--k=20", "--k=3")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if shutil.which("recbole-hyper", path=path) is None:
        pytest.skip("the command recbole-hyper is not in the folder of this Python")
    # tomorrow, whose lists are not made again here, replaces today
    folder_of_the_shop, _, load = (part.strip() for part in command.split("&&"))
    for words in (command, f"{folder_of_the_shop} && {load}"):
        subprocess.run(["sh", "-c", words], check=True, env={**database, "PATH": path}, capture_output=True)
    loaded = rows_of(database)
    written = pd.read_csv(tmp_path / "recs.csv").sort_values(["user_id", "position"], ignore_index=True)
    pd.testing.assert_frame_equal(loaded.assign(popular=loaded["popular"] == "t"), written, rtol=1e-5)
    assert set(loaded["item_id"]) <= set(items[:6])
    # a file without a row changes nothing
    header = (tmp_path / "recs.csv").read_text().splitlines()[0]
    words = ["psql", "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={EXAMPLES / 'load_postgres.sql'}", "shop"]
    failed = subprocess.run(words, input=f"{header}\n", capture_output=True, text=True, check=False, env=database)
    assert failed.returncode != 0
    assert "the file has no recommendations; the old ones are kept" in failed.stderr
    assert len(rows_of(database)) == len(loaded)


def test_the_compose_file_calls_the_command() -> None:
    service = yaml.safe_load((EXAMPLES / "compose.yaml").read_text())["services"]["recommend"]
    # the arguments of the image's entry point
    assert (EXAMPLES / service["build"] / "Dockerfile").is_file()
    arguments = _parse(["serve", *shlex.split(service["command"])])
    assert (arguments.command, arguments.run, arguments.workers) == ("serve", "/models/current", 2)
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_the_night_uses_commands_that_exist() -> None:
    script = EXAMPLES / "nightly.sh"
    subprocess.run(["sh", "-n", str(script)], check=True)
    lines = re.findall(r"^ *recbole-hyper (.*)$", script.read_text(), flags=re.MULTILINE)
    names = [_parse(shlex.split(line.removesuffix("|| true"))).command for line in lines]
    assert names == ["prepare", "run", "evaluate", "recommend"]
