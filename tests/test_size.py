"""No function grows beyond what a reader takes in at once, and no room beyond its budget."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "recbole_hyper"
TESTS_FOLDER = Path(__file__).parent
LINES, PARAMETERS = 60, 8

# lines of each room at the most; a feature raises its room's figure in its own commit and says why
ROOMS = {
    # 39 more: units of times in known formats, files that are read, parts with other forms of ids, lost seconds
    # 7 more: what is chosen of late
    "data": (4779, ("data",)),
    "losses": (2413, ("losses", "functional.py")),
    "config": (
        # 4 more: negatives of RecBole's models
        2347,
        ("config", "settings.py", "options.py", "values.py", "registry.py", "yaml_files.py", "plugin_files.py"),
    ),
    "host": (1950, ("host", "hosted")),
    # 18 more: what a comparison or a sweep would overwrite
    "experiment": (1918, ("sweep", "experiment")),
    # 16 more: what a report would overwrite, models with users beside histories
    "report": (2877, ("report", "evaluation")),
    # 6 more: editors and mypy see what an estimator asks its run; 25 more: what is fitted once, with the best weights;
    # 11 more: whether a run began in a folder, whether its data are the same, cases of a fit; 1 more: kernels' memory
    "runs": (4012, ("runs", "training")),
    # 2 more: points that coincide up to rounding
    "curvature": (499, ("curvature",)),
    # 17 more: conditions are evaluated beside the other requests, with a bound; 21 more: examples and completion
    # 12 more: a bound for batches, one type of text in catalogues
    "serving": (3336, ("serving", "commands")),
    # 94 more: EASE^R of the default for any catalogue, cases that are read by their lengths
    # 11 more: evidence that fits nothing is not read, and nearest items are not sorted; 3 more: what is chosen of late
    "models": (2108, ("models",)),
    "encoders": (2635, ("encoders",)),
    # 48 more: Poincare logits of far parallel states, and candidates without padding; 12 more: geoopt is imported late
    "geometry": (1569, ("geometry", "hyperbolic")),
    # 10 more: no subnormal shares; 53 more: regressions on the nearest items
    "kernels": (1205, ("kernels",)),
    # the loaders, which were in data; the data set of a run, which was there too, is in runs
    # 20 more: the order of RecBole's loader and the draws of its sampler
    "batches": (567, ("batches",)),
    # 5 more: what is left out is counted
    "protocols": (1422, ("protocols", "types.py")),
}
ALL = 34945
TESTS = 36823
RESULTS = 61  # 1 more: the rows that RecBoard reads
# texts of errors that tests match by a regular expression
MATCHED = 41

# compiled loops take arrays one by one and are written out flat
FOLDERS = ("kernels",)
# public signatures, by the reason for their many parameters
PUBLIC = {
    "the options of a loss, stated once": ("functional.py:cross_entropy", "losses/ce.py:exact_cross_entropy"),
    "the parameters of a part are its options": (
        "encoders/moebius_gru.py:MoebiusGRUEncoder.__init__",
        "encoders/moebius_gru.py:MoebiusGRU.__init__",
        "encoders/_relations.py:RelationalBlock.__init__",
        "encoders/transformer.py:TransformerEncoder.__init__",
        "encoders/windowed_attention.py:WindowedAttentionLayer.__init__",
        "encoders/windowed_attention.py:WindowedAttention.__init__",
    ),
    "what a finished run may be asked": ("serving/recommender.py:Recommender.recommend",),
    "the options of a command, as keywords": (
        "curvature/estimate.py:estimate_curvature",
        "data/tables/prepare/pipeline.py:prepare",
        "evaluation/metrics.py:compute_metrics",
        "runs/serve.py:serve",
        "experiment/compare.py:compare",
        "sweep/driver.py:sweep",
        "hyperbolic/riemannian.py:riemannian_optimizer",
    ),
    "autograd hands over the tensors of a loss one by one": (
        "losses/ce.py:_ExactCrossEntropy.forward",
        "losses/sampled_softmax.py:_Sampled.forward",
    ),
    "a Triton kernel takes pointers and sizes one by one": (
        "losses/_triton.py:_items",
        "losses/_triton.py:_states",
        "losses/_triton.py:_targets",
    ),
}


def functions(file: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield every function of a file with its name, that of its class included."""
    pending: list[tuple[str, ast.AST]] = [("", ast.parse(file.read_text(encoding="utf-8")))]
    while pending:
        prefix, node = pending.pop()
        for child in ast.iter_child_nodes(node):
            name = prefix
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    yield name, child
                name += "."
            pending.append((name, child))


def size(function: ast.FunctionDef | ast.AsyncFunctionDef) -> tuple[int, int]:
    """Return the lines of a function's body without its docstring, and its parameters but self and cls."""
    first = function.body[0]
    is_text = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    begin = (first.end_lineno or 0) + 1 if is_text else first.lineno
    arguments = function.args
    names = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    names += [argument.arg for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
    lines = (function.end_lineno or 0) - begin + 1
    return lines, len([name for name in names if name not in ("self", "cls")])


@functools.cache
def sizes() -> dict[str, tuple[int, int]]:
    """Return the size of every function of the package by file and name, those of compiled loops left out."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE)
        if place.parts[0] not in FOLDERS:
            found |= {f"{place.as_posix()}:{name}": size(function) for name, function in functions(file)}
    return found


def test_no_function_is_too_long() -> None:
    assert {name: lines for name, (lines, _) in sizes().items() if lines > LINES} == {}


def test_no_function_has_too_many_parameters() -> None:
    public = {name for names in PUBLIC.values() for name in names}
    assert {name: count for name, (_, count) in sizes().items() if count > PARAMETERS and name not in public} == {}


def test_sizes_are_counted() -> None:
    text = 'def f(self, a, *b, c=1, **d):\n    """Text.\n\n    More.\n    """\n    return a\n'
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert size(function) == (1, 4)


def lines(*places: Path) -> int:
    """Return the number of lines of these files, and of the Python files in these folders."""
    files = [file for place in places for file in (place.rglob("*.py") if place.is_dir() else (place,))]
    return sum(file.read_text(encoding="utf-8").count("\n") for file in files)


def test_no_room_is_over_its_budget() -> None:
    over = {
        room: (counted, budget)
        for room, (budget, places) in ROOMS.items()
        if (counted := lines(*(PACKAGE / place for place in places))) > budget
    }
    assert over == {}, "rooms with their lines and their budget"
    assert lines(PACKAGE) <= ALL


def test_tests_and_results_are_within_their_budget() -> None:
    assert lines(TESTS_FOLDER) <= TESTS
    texts = [file.read_text(encoding="utf-8") for file in TESTS_FOLDER.rglob("*.py")]
    assert sum(len(re.findall(r"\bmatch=", text)) for text in texts) <= MATCHED
    results = [file for file in (PACKAGE.parent / "results").rglob("*") if file.is_file()]
    assert len([file for file in results if "__pycache__" not in file.parts]) <= RESULTS
