"""Which library should read tables? Seconds, memory, and how exactly each one reports lines that it cannot read.

    python benchmarks/bench_engines.py [--rows=4000000] [--output=results/bench_engines.json]
    python benchmarks/bench_engines.py --forms --rows=1000000 [--output=results/bench_forms.json]

The generated csv has four text columns (user, item, rating, time). In a separate process, each library reads them as
text, numbers users and items by first appearance, and returns numpy arrays. Small files with faults show what a library
reports by itself. polars is not a dependency: it is measured if it is installed.

``--forms`` decides which library reads csv, parquet and json: processor seconds on one thread until all columns are in
Arrow as text, the best of three in turns. Errors name the line of a value, so that rows of csv must be numbered; the
blocks of json keep line numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import Process
from pathlib import Path
from typing import Any

FAULTS = {
    "a line too long": b"user,item,time\na,b,1\nc,d,2,9\ne,f,3\n",
    "a line too short": b"user,item,time\na,b,1\nc,d\ne,f,3\n",
    "a quote inside": b'user,item,time\na,b,1\n5" disk,d,2\n"e,f,3\ng,h,4\n',
    "a quoted line end": b'user,item,time\na,"b\nb",1\nc,d,2,9\ne,f,3\n',
    "Latin-1 in another column": b"user,item,time,text\na,b,1,x\nc,d,2,caf\xe9\ne,f,3,x\n",
    "ids 007, NA and empty": b"user,item,time\n007,NA,1\n,null,2\n",
}


def write_csv(path: Path, rows: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pacsv

    draw = np.random.default_rng(3)
    columns = {
        "user": [f"u{number:09}" for number in (rows // 10 * draw.random(rows) ** 2).astype(int).tolist()],
        "item": [f"i{number:07}" for number in (rows // 20 * draw.random(rows) ** 3).astype(int).tolist()],
        "rating": draw.integers(1, 6, rows),
        "time": draw.integers(1_000_000_000, 1_500_000_000, rows),
    }
    pacsv.write_csv(pa.table(columns), path, pacsv.WriteOptions(quoting_style="none", quoting_header="none"))


def _csv_by_pyarrow(path: Path, faults: list[str]) -> Any:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    def skip(row: Any) -> str:
        faults.append(f"line {row.number}: {row.actual_columns} values instead of {row.expected_columns}")
        return "skip"

    names = path.open(encoding="latin-1").readline().strip().split(",")
    wanted = [name for name in names if name != "text"]
    convert = pacsv.ConvertOptions(
        include_columns=wanted, column_types=dict.fromkeys(wanted, pa.string()), strings_can_be_null=False
    )
    parse = pacsv.ParseOptions(invalid_row_handler=skip, newlines_in_values=True)
    return pacsv.read_csv(path, pacsv.ReadOptions(use_threads=False), parse, convert)


def pyarrow(path: Path, faults: list[str]) -> list[Any]:
    table = _csv_by_pyarrow(path, faults)
    codes = [table.column(name).dictionary_encode().unify_dictionaries() for name in ("user", "item")]
    return [*([chunk.indices.to_numpy() for chunk in code.chunks] for code in codes), table.num_rows]


def polars(path: Path, faults: list[str]) -> list[Any]:
    import polars as pl

    frame = pl.read_csv(path, infer_schema=False)
    with_codes = [frame[name].cast(pl.Categorical).to_physical().to_numpy() for name in ("user", "item")]
    return [*with_codes, len(frame)]


def duckdb(path: Path, faults: list[str]) -> list[Any]:
    import duckdb as db

    connection = db.connect()
    read = "read_csv(?, all_varchar=true, header=true, delim=',', store_rejects=true, nullstr='\\N')"
    table = connection.execute(f"select * from {read}", [str(path)]).to_arrow_table()
    rejected = connection.execute("select line, error_type, error_message from reject_errors order by line").fetchall()
    faults += [f"line {line}: {kind} {text.splitlines()[0]}" for line, kind, text in rejected]
    codes = [table.column(name).dictionary_encode() for name in ("user", "item")]
    return [*codes, table.num_rows]


ENGINES: dict[str, Callable[[Path, list[str]], list[Any]]] = {"pyarrow": pyarrow, "polars": polars, "duckdb": duckdb}


def _duckdb_table(sql: str, path: Path) -> Any:
    import duckdb as db

    return db.connect(config={"threads": 1}).sql(sql, params=[str(path)]).to_arrow_table()


def _copy(source: Path, target: Path, form: str) -> None:
    import duckdb as db

    db.execute(f"copy (from read_csv('{source}', all_varchar=true)) to '{target}' (format {form})")


def _csv_by_duckdb(path: Path, more: str = "") -> Any:
    return _duckdb_table(f"select *{more} from read_csv(?, all_varchar=true, header=true, store_rejects=true)", path)


def _parquet_by_pyarrow(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.read_table(path, use_threads=False)


def _json_by_pyarrow(path: Path) -> Any:
    import pyarrow.json as pajson

    return pajson.read_json(path, pajson.ReadOptions(use_threads=False, block_size=1 << 24))


def _json_in_blocks(path: Path) -> Any:
    from recbole_hyper.data.tables.archives import SourceFile
    from recbole_hyper.data.tables.formats import find
    from recbole_hyper.data.tables.malformed import Malformed
    from recbole_hyper.data.tables.parsers import parsed, pieces

    columns = {"user_id": "user", "item_id": "item", "rating": "rating", "timestamp": "time"}
    form = replace(find("jsonl"), columns=columns)
    return [parsed(piece, form, Malformed(path.name)) for piece in pieces(SourceFile(path), form)]


FORMS: dict[str, dict[str, Callable[[Path], Any]]] = {
    "csv": {
        "pyarrow, numbered": lambda path: _csv_by_pyarrow(path, []),
        "duckdb": _csv_by_duckdb,
        "duckdb, numbered": lambda path: _csv_by_duckdb(path, ", row_number() over () as line"),
    },
    "parquet": {
        "pyarrow": _parquet_by_pyarrow,
        "duckdb": lambda path: _duckdb_table("select * from read_parquet(?)", path),
    },
    "json": {
        "pyarrow": _json_by_pyarrow,
        "duckdb": lambda path: _duckdb_table("select * from read_json(?, format='newline_delimited')", path),
        "duckdb in blocks": _json_in_blocks,
    },
}


def compare_forms(rows: int) -> dict[str, dict[str, float]]:
    """Return the processor seconds of each reader, by form."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {form: Path(folder) / f"rows.{form}" for form in FORMS}
        write_csv(paths["csv"], rows)
        for form in ("parquet", "json"):
            _copy(paths["csv"], paths[form], form)
        for form, readers in FORMS.items():
            seconds: dict[str, list[float]] = {name: [] for name in readers}
            for _ in range(3):
                for name, read in readers.items():
                    start = time.process_time()
                    read(paths[form])
                    seconds[name].append(time.process_time() - start)
            results[form] = {name: round(min(values), 2) for name, values in seconds.items()}
            print(f"{form:10}{results[form]}", flush=True)
    return results


def step(engine: str, path: Path) -> dict[str, Any]:
    faults: list[str] = []
    start = time.perf_counter()
    try:
        found = {"rows": ENGINES[engine](path, faults)[-1]}
    except Exception as error:  # what the library says is what is measured
        found = {"error": " ".join(str(error).split())[:160]}
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {**found, "faults": faults, "seconds": round(seconds, 2), "peak_gb": round(peak, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=4_000_000)
    parser.add_argument("--forms", action="store_true", help="compare the readers of csv, parquet and json")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--step", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step:
        print(json.dumps(step(arguments.step, arguments.file)))
        return
    results: dict[str, Any] = {
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
    if arguments.forms:
        results |= {"rows": arguments.rows, "processor seconds": compare_forms(arguments.rows)}
        if arguments.output:
            arguments.output.write_text(json.dumps(results, indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, data in FAULTS.items():
            files[name] = Path(folder) / f"{len(files)}.csv"
            files[name].write_bytes(data)
        files[f"{arguments.rows} rows"] = Path(folder) / "rows.csv"
        # in a separate process, because a child's peak memory starts from its parent's
        write = Process(target=write_csv, args=(files[f"{arguments.rows} rows"], arguments.rows))
        write.start()
        write.join()
        for name, path in files.items():
            for engine in ENGINES:
                command = [sys.executable, __file__, f"--step={engine}", f"--file={path}"]
                run = subprocess.run(command, capture_output=True, text=True, check=False)
                found = (
                    json.loads(run.stdout) if run.returncode == 0 else {"error": run.stderr.strip().splitlines()[-1]}
                )
                results.setdefault(name, {})[engine] = found
                print(f"{name:28}{engine:10}{found}", flush=True)
    results["command"] = " ".join(["python", "benchmarks/bench_engines.py", *sys.argv[1:]])
    if arguments.output:
        arguments.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
