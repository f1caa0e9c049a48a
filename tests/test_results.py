"""What README and results/ print is what their scripts make of the result files."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import re
import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import torch
import yaml
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images

from recbole_hyper import plugin_files, registry, run
from recbole_hyper.config import Config
from recbole_hyper.models.data_defaults import RULES
from recbole_hyper.protocols.base import make_split
from recbole_hyper.random_numbers import OwnDraws
from recbole_hyper.runs.build import build
from recbole_hyper.runs.dataset import SequenceDataset
from tests.conftest import SMALL

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@functools.cache
def script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"results_{name}", RESULTS / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["figure_curvature", "figure_heads", "figure_losses", "figure_ndcg_time"])
def test_figures_are_drawn_from_the_result_files(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, path, **more: save(figure, tmp_path / path.name, **more))
    script(name).main()
    drawn = sorted(tmp_path.glob("*.png"))
    assert drawn
    folder = ROOT / "docs" / "images" if name == "figure_curvature" else RESULTS
    for file in drawn:
        assert compare_images(str(folder / file.name), str(file), tol=2) is None, f"run python results/{name}.py"


def test_readme_is_written_by_its_template() -> None:
    claims = script("claims")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == claims.readme(), "edit results/readme_template.md, then run python results/claims.py"
    assert (RESULTS / "first.png").is_file()


def test_readme_says_how_the_default_model_and_the_hyperbolic_head_compare() -> None:
    """README's words about results are true of the result files."""
    claims = script("claims")
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "protocol are lower, and below our 95 % intervals" in text

    def place(dataset: str) -> tuple[bool, str]:
        """Return whether the default leads, and where the best published row is: below, inside or above."""
        runs, best = claims.seeds_of(dataset), claims.published(dataset)[0]["ndcg@10"]
        low, high = runs[0]["test_intervals"]["ndcg@10"]
        leads = statistics.fmean(run["test"]["ndcg@10"] for run in runs) > best
        return leads, "below" if best < low else "above" if best > high else "inside"

    assert {place(dataset) for dataset in claims.TABLE} == {(True, "below")}
    assert "On Amazon Toys and Yelp the best published row is below our interval too" in text
    assert "on LastFM it is lower, and on Foursquare higher, but inside it" in text
    assert {title: place(dataset) for dataset, title in claims.APART.items()} == {
        "Amazon Toys": (True, "below"),
        "LastFM": (True, "inside"),
        "Foursquare": (False, "inside"),
        "Yelp": (True, "below"),
    }
    assert "With the curvature that Gromov delta suggests, the hyperbolic head shows no reliable gain" in text
    assert "on sparse data it costs accuracy; nearly flat, it gains as a sharper softmax does" in text
    rows = [(title, row) for title, found in claims.claims().items() for row in found if row["seeds"] > 1]
    suggested = [(title, row) for title, row in rows if title.startswith("Poincare head less Euclidean")]
    certain = [(title, row) for title, row in suggested if row["Holm"] == "< .01" or float(row["Holm"]) < 0.05]
    assert certain
    assert all(row["difference"] < 0 and "Amazon" in title for title, row in certain)
    (flat,) = (row for title, row in rows if title.startswith("Nearly flat"))
    assert flat["difference"] > 0
    # docs/curvature.md: the flat limit gains exactly as much
    (same,) = (row for title, row in rows if title.startswith("Flat limit (temperature 1/4) less nearly flat"))
    assert abs(same["difference"]) < 0.0001
    assert same["p"] == "0.96"
    assert "with a p-value of .96" in (ROOT / "docs/curvature.md").read_text(encoding="utf-8")


def test_differences_are_those_of_the_result_files() -> None:
    claims = script("claims")
    assert (RESULTS / "claims.md").read_text(encoding="utf-8") == claims.claims_text()
    rows = [row for group in claims.claims().values() for row in group]
    assert len(rows) > 15
    assert all((row["seeds"] == 1) == (row["p"] == "one seed") for row in rows)


def test_the_best_published_row_is_the_best(tmp_path: Path) -> None:
    claims = script("claims")
    everything = yaml.safe_load((RESULTS / "published.yaml").read_text())
    for dataset in claims.TABLE | claims.APART:
        rows = everything[dataset]
        best = claims.published(dataset)[0]
        assert all(row["ndcg@10"] <= best["ndcg@10"] for row in rows if "apart" not in row)
        assert all(row["source"] and 0 < row["ndcg@10"] < row["hit@10"] < 1 for row in rows)


PAGES = sorted(path.stem for path in (RESULTS / "pages").glob("*.yaml"))
# metrics have four digits, settings fewer; a text has a figure from a result file, as {RUN:test.ndcg@10}
FIGURE = re.compile(r"\.\d{4,}|\b(?!95 %)\d[.\d]* (?:%|times)")


@pytest.mark.parametrize("name", ["speed", *(pytest.param(p, marks=pytest.mark.slow) for p in PAGES if p != "speed")])
def test_a_page_is_what_the_result_files_give(name: str) -> None:
    pages = script("pages")
    written = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert written == pages.page_text(pages.pages()[name]), "run python results/pages.py"


def test_every_page_is_made_of_result_files() -> None:
    by_script = {"claims", "gpu", "warm_start", *PAGES}
    assert {path.stem for path in RESULTS.glob("*.md")} - by_script <= {"README", "readme_template", "records"}


def test_the_page_of_the_gpu_is_drawn_from_its_file() -> None:
    page = script("gpu").page(json.loads((RESULTS / "bench_gpu.json").read_text(encoding="utf-8")))
    assert (RESULTS / "gpu.md").read_text(encoding="utf-8") == page, "run python results/gpu.py"


def test_the_page_of_the_gpu_takes_what_was_measured() -> None:
    """One section, outside a checkout: bench-gpu on somebody's machine."""
    rows = [{"model": "gSASRec", "cuda_graphs": True, "ms": 2.5, "replays": 3}]
    entry = {"device": "cuda (A, 8 GiB)", "torch": "2.13.0", "commit": None, "sections": {"steps": rows}}
    page = script("gpu").page([entry])
    assert "| step of gSASRec, ms | 10 | 2.50 |" in page
    assert "whole run" not in page
    assert "\nthis version, torch 2.13.0\n" in page


def texts(name: str) -> list[str]:
    page = yaml.safe_load((RESULTS / f"pages/{name}.yaml").read_text(encoding="utf-8"))
    return [page["about"], *(table.get("about", "") for table in page["tables"])]


@pytest.mark.parametrize("name", PAGES)
def test_no_text_states_a_figure_by_hand(name: str) -> None:
    for text in texts(name):
        assert FIGURE.findall(re.sub(r"\{[^{}]*\}", "", text)) == []


def test_figures_by_hand_are_found_and_those_of_files_filled_in() -> None:
    assert FIGURE.findall("validation .1422, rate .004, 98 %, 95 % interval") == [".1422", "98 %"]
    pages = script("pages")
    run = pages.read("ml-1m_FMLPRecCE_start")
    assert pages.filled("{ml-1m_FMLPRecCE_start:test.ndcg@10} here") == f"{pages.short(run['test']['ndcg@10'])} here"


@functools.cache
def command_keys(run: str) -> dict[str, str]:
    pages = script("pages")
    return pages.command_keys(pages.read(run))


def setting(run: str) -> dict[str, str]:
    """Return the keys of a run's command that change what is trained and what is ranked."""
    content, keys = script("pages").read(run), command_keys(run)
    without_effect = {"seed", "metrics", "topk"}
    if content["epochs"] == content["config"]["epochs"]:
        without_effect.add("stopping_step")
    # an estimated curvature starts at the estimate
    if keys.get("curvature") == "auto":
        without_effect.add("curvature_init")
    # the default
    if keys.get("inner_size") == str(4 * (content["config"].get("hidden_size") or 0)):
        without_effect.add("inner_size")
    return {key: text for key, text in keys.items() if key not in without_effect}


def page_rows() -> list[dict[str, Any]]:
    return [
        row for page in script("pages").pages().values() for table in page["tables"] for row in table.get("rows", ())
    ]


def test_rows_of_several_seeds_differ_in_the_seed_alone() -> None:
    """A row of several seeds has one setting; a mean over runs of different settings would be no mean over seeds."""
    pages = script("pages")
    groups = {tuple(pages.runs_of(row)) for row in page_rows()}
    names = {re.sub(r"_seed\d+$", "", path.stem) for path in (RESULTS / "runs").glob("*.json")}
    groups |= {tuple(pages.seeds_of(name)) for name in names}
    assert sum(len(group) > 1 for group in groups) > 80
    for group in groups:
        runs = [pages.read(run) for run in group]
        keys = ("model", "dataset", "protocol", "eval_args", "exclude_seen", "data_fingerprint")
        assert len({json.dumps([run[key] for key in keys], sort_keys=True) for run in runs}) == 1, group
        assert len({run["seed"] for run in runs}) == len(runs), group
        if len(runs) > 1:
            assert all(setting(run) == setting(group[0]) for run in group), group


def test_rows_with_no_setting_changed_have_the_settings_that_their_data_give() -> None:
    """A command shows what auto chose; what it shows beside that was changed."""
    rows = [row for row in page_rows() if "no setting changed" in row["row"]]
    assert len(rows) > 15
    expected = {"model", "dataset", "config_files", "refit", "eval_args", *RULES}
    for row in rows:
        for name in script("pages").runs_of(row):
            keys = setting(name).keys() - expected
            assert keys == ({"train_windows"} if "but the newest window alone" in row["row"] else set()), name


def test_rows_of_a_table_with_one_command_are_of_different_machines() -> None:
    """A row whose command gives another row is not what its command gives."""
    pages = script("pages")
    for page in pages.pages().values():
        for table in page["tables"]:
            found: dict[Any, str] = {}
            for row in table.get("rows", ()):
                name = pages.runs_of(row)[0]
                run = pages.read(name)
                machine = (run.get("device") or {}).get("type"), run.get("threads")
                other = found.setdefault((frozenset(command_keys(name).items()), machine), row["row"])
                assert other == row["row"], f"{table['title']}: {row['row']}, {other}"


def test_claims_compare_runs_that_differ_in_what_the_claim_names() -> None:
    """In the head or the reranking; in the learning rate where the row says so."""
    named = {"model", "geometry", "curvature", "curvature_init", "temperature", "memory_rerank"}
    for group in yaml.safe_load((RESULTS / "claims.yaml").read_text(encoding="utf-8")):
        for row in group["rows"]:
            others = {key for key, _ in setting(row["first"]).items() ^ setting(row["second"]).items()} - named
            assert others == ({"learning_rate"} if "rates" in row["row"] else set())


def test_pending_rows_appear_with_their_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So finished runs need no change of a page; a row has all seeds that are there."""
    pages = script("pages")
    for name in ("a", "b_seed2021", "b_seed2022", "bb_seed2021"):
        (tmp_path / "runs").mkdir(exist_ok=True)
        (tmp_path / f"runs/{name}.json").write_text("{}")
    rows = [{"row": name, "run": name, "pending": True} for name in ("a", "b", "c")]
    (tmp_path / "pages").mkdir()
    content = {"tables": [{"rows": rows}, {"rows": [dict(rows[2])]}, {"file": "x.csv"}]}
    (tmp_path / "pages/p.yaml").write_text(yaml.safe_dump(content))
    monkeypatch.setattr(pages, "HERE", tmp_path)
    monkeypatch.setattr(pages, "PAGES", tmp_path / "pages")
    shown, file = pages.pages()["p"]["tables"]
    assert [(row["row"], pages.runs_of(row)) for row in shown["rows"]] == [
        ("a", ["a"]),
        ("b", ["b_seed2021", "b_seed2022"]),
    ]
    assert file == {"file": "x.csv"}


def test_pages_point_at_files_that_are_there() -> None:
    pages = [page for page in RESULTS.glob("*.md") if page.name != "readme_template.md"]
    for page in (ROOT / "README.md", *pages):
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_model_pages_show_the_result_files() -> None:
    """If it fails, run python results/model_pages.py."""
    writer = script("model_pages")
    pages = yaml.safe_load((RESULTS / "model_pages.yaml").read_text(encoding="utf-8"))
    assert {path.stem for path in writer.DOCS.glob("*.md")} - {"index"} == set(pages)
    for page in pages:
        written = (writer.DOCS / f"{page}.md").read_text(encoding="utf-8")
        assert written == writer.text_of(page), page


def test_the_tables_of_the_study_of_curvature_show_the_result_files() -> None:
    """If it fails, run python results/model_pages.py."""
    writer = script("model_pages")
    written = writer.CURVATURE.read_text(encoding="utf-8")
    assert written == writer.curvature_text()
    tables = yaml.safe_load((RESULTS / "curvature.yaml").read_text(encoding="utf-8"))
    assert re.findall(r"<!-- table ([\w-]+) -->\n\n\| head \|", written) == list(tables)
    compared = len(tables["tuned-leads"]["heads"]) * len(tables["tuned-leads"]["cells"])
    assert f"when all {compared} are adjusted" in " ".join(written.split())
    # a mean with its deviation, or the number of seeds
    assert writer.seeds_text([0.1, 0.2, 0.3]) == ".2000 ± .1000"
    assert writer.seeds_text([0.1, 0.2]) == ".1500 (2)"
    assert writer.seeds_text([]) == ""
    (row,) = re.findall(r"\| Poincare, c = \.0003 \|.*", written)
    runs = [f"amazon-beauty-sequences_flat_16{seed}" for seed in ("", "_seed2021", "_seed2022")]
    values = [json.loads((RESULTS / f"runs/{name}.json").read_text())["test"]["ndcg@10"] for name in runs]
    assert row.split(" | ")[2] == f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}".replace("0.", ".")


def test_the_default_is_ahead_of_three_others_on_all_data() -> None:
    """The sentence in results/records.md; EASE^R, PureSVD-N and SASRecCE have a row for every data set.

    What depends on a seed has three.
    """
    pages = script("pages")
    (table,) = (one for one in pages.pages()["records"]["tables"] if "beside EASE^R" in one["title"])
    assert "The default model is ahead of the three others on all of them." in " ".join(table["about"].split())
    found: dict[str, dict[str, float]] = {}
    for row in table["rows"]:
        (data, model), results = row["row"].rsplit(", ", 1), pages.results_of(row)
        found.setdefault(data, {})[model] = statistics.fmean(result["test"]["ndcg@10"] for result in results)
        assert model in ("EASE^R", "PureSVD-N") or {2020, 2021, 2022} == {result["seed"] for result in results}
    assert len(found) == 11
    for values in found.values():
        others = [values[model] for model in ("EASE^R", "PureSVD-N", "SASRecCE")]
        assert values["FMLPRecMemory"] > max(others)


@pytest.mark.parametrize(
    ("name", "default", "refit", "data", "models"),
    [
        ("{data}_global_timepoint_{model}", "", True, data, ("SASRecCE", "HSASRecCE", "EASER"))
        for data in ("amazon-beauty", "amazon-sports")
    ]
    + [
        ("{data}_global_timepoint_{model}", "", False, "ml-1m", ("SASRecCE", "HSASRecCE", "SASRecBCE", "HSASRec")),
        *(
            ("{data}_temporal_users_{model}", "", False, data, ("EASER", "ItemKNN", "PureSVDN", "Pop", "ce"))
            for data in ("amazon-beauty", "ml-1m")
        ),
        # EASE^R is ahead there, unless the default may mix it in
        ("{data}_temporal_users_{model}", "", False, "amazon-sports", ("ItemKNN", "PureSVDN", "Pop", "ce")),
        ("{data}_temporal_users_{model}", "_ease", False, "amazon-sports", ("EASER", "FMLPRecMemory")),
    ]
    + [
        (name, "_default", refit, data, ("EASER", "PureSVDN", "ItemKNN", "Pop"))
        for name, refit in (("{data}_{model}_last_after", True), ("timepoint_last_{data}_{model}", False))
        for data in ("amazon-beauty", "amazon-sports", "ml-1m")
    ],
)
def test_the_default_is_ahead_under_a_timepoint(
    name: str, default: str, refit: bool, data: str, models: Sequence[str]
) -> None:
    """The sentences in docs/models/memory.md."""
    pages = script("pages")
    seeds = pages.seeds_of(name.format(data=data, model="FMLPRecMemory") + default)
    own = [pages.read(seed) for seed in seeds]
    others = [pages.read(name.format(data=data, model=model)) for model in models]
    for result in own + others:
        assert result["config"]["refit"] is refit
        assert all(result[key] == own[0][key] for key in ("n_test_cases", "data_fingerprint", "eval_args"))
    assert min(one["test"]["ndcg@10"] for one in own) > max(one["test"]["ndcg@10"] for one in others)


SHARPER = ["flat-limit", "learned-temperature"]
DOT_PRODUCTS = ["dot-product", *SHARPER]
POINCARE = ["poincare-learned", "poincare-fixed", "poincare-auto"]
# the heads for which a rate of .005 and a dropout of .5 were chosen; for all others .003 and .3
MORE_DROPOUT = {
    ("amazon-beauty-sequences", 64): [*DOT_PRODUCTS, *POINCARE],
    ("amazon-sports-sequences", 32): [*SHARPER, *POINCARE],
    ("amazon-sports-sequences", 64): [*DOT_PRODUCTS, *POINCARE],
}


def tuned_heads(data: str, width: int) -> pd.DataFrame:
    """Return the rows of the study of curvature on a data set at a width: six heads, three seeds, one trial chosen."""
    rows = pd.read_csv(RESULTS / "curvature_tuned.csv")
    rows = rows[(rows["data"] == data) & (rows["d"] == width)]
    assert (len(rows), rows["head"].nunique(), rows["seed"].nunique()) == (18, 6, 3)
    more = rows["head"].isin(MORE_DROPOUT.get((data, width), []))
    assert rows["rate"].tolist() == more.map({True: 0.005, False: 0.003}).tolist()
    assert rows["dropout"].tolist() == more.map({True: 0.5, False: 0.3}).tolist()
    return rows


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_tuned_heads_have_the_order_that_the_study_of_curvature_states(width: int) -> None:
    """docs/curvature.md, Beauty: sharper dot products, then Poincare heads from flat to curved."""
    rows = tuned_heads("amazon-beauty-sequences", width)
    by_seed = rows.pivot(index="seed", columns="head", values="ndcg@10")
    assert (by_seed[SHARPER].min(axis=1) > by_seed[POINCARE].max(axis=1)).all()
    assert (by_seed["poincare-fixed"] > by_seed["poincare-auto"]).all()
    means = rows.groupby("head")[["ndcg@10", "coverage@10", "overlap"]].mean()
    order = ["learned-temperature", *POINCARE, "dot-product"]
    if width <= 16:
        assert (by_seed[POINCARE].diff(axis=1).iloc[:, 1:] < 0).all(axis=None)
        assert (by_seed["poincare-fixed"] > by_seed["dot-product"]).all()
        assert (means.loc[order, "coverage@10"].diff().dropna() < 0).all()
        assert (rows[rows["head"] == "poincare-learned"]["theta"] < 0.02).all()
    if width == 8:
        assert (by_seed["poincare-auto"] > by_seed["dot-product"]).all()
        assert (means.loc[order, "overlap"].diff().dropna() < 0).all()
    if width == 16:
        assert means.loc["poincare-auto", "ndcg@10"] < means.loc["dot-product", "ndcg@10"]
        assert means.loc["dot-product", "overlap"] > means.loc[POINCARE, "overlap"].max()
    if width == 64:
        assert (by_seed["dot-product"] > by_seed[POINCARE].max(axis=1)).all()
        assert means["coverage@10"].idxmax() == means["overlap"].idxmax() == "poincare-fixed"
        assert means.loc[POINCARE, "coverage@10"].min() > means.loc[DOT_PRODUCTS, "coverage@10"].max()
    else:
        assert means["overlap"].idxmax() == "flat-limit"


@pytest.mark.parametrize("data", ["amazon-beauty-sequences", "amazon-sports-sequences"])
@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_coverage_and_neighbourhoods_are_as_the_study_of_curvature_states(data: str, width: int) -> None:
    means = tuned_heads(data, width).groupby("head")[["coverage@10", "trustworthiness"]].mean()
    covers_more = means.loc[SHARPER, "coverage@10"] > means.loc["dot-product", "coverage@10"]
    assert covers_more.tolist() == [(data, width) != ("amazon-sports-sequences", 32)] * 2
    dot_products = means.loc[DOT_PRODUCTS, "trustworthiness"]
    assert dot_products.min() > means.loc[POINCARE, "trustworthiness"].max()


def test_the_gain_of_a_sharper_softmax_shrinks_with_the_width() -> None:
    """docs/curvature.md, Beauty."""
    gains = []
    for width in (8, 16, 32, 64):
        means = tuned_heads("amazon-beauty-sequences", width).groupby("head")["ndcg@10"].mean()
        gains.append(means["flat-limit"] / means["dot-product"])
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize("data", ["amazon-beauty-sequences", "ml-1m"])
def test_the_learned_temperature_rises_towards_one_with_the_width(data: str) -> None:
    means = [tuned_heads(data, width).groupby("head")["theta"].mean() for width in (8, 16, 32, 64)]
    temperatures = [mean["learned-temperature"] for mean in means]
    assert temperatures == sorted(temperatures)
    assert temperatures[-1] < 1


@pytest.mark.parametrize(
    ("width", "lower", "ahead", "nearest"),
    [
        (8, 7, "flat-limit", "learned-temperature"),
        (16, 4, "flat-limit", "flat-limit"),
        (32, 5 / 2, "learned-temperature", "dot-product"),
        (64, 2, "flat-limit", "flat-limit"),
    ],
)
def test_tuned_heads_on_sports_are_as_the_study_of_curvature_states(
    width: int, lower: float, ahead: str, nearest: str
) -> None:
    sports = tuned_heads("amazon-sports-sequences", width)
    by_seed = sports.pivot(index="seed", columns="head", values="ndcg@10")
    assert (by_seed[ahead] > by_seed[POINCARE].max(axis=1)).all()
    assert by_seed.mean().idxmin() == "poincare-auto"
    assert width == 8 or (by_seed.idxmin(axis=1) == "poincare-auto").all()
    means = sports.drop(columns="data").groupby("head").mean()
    assert abs(means["theta"]["poincare-auto"] / means["theta"]["poincare-learned"] - lower) < 0.07 * lower
    assert means["overlap"].idxmax() == nearest
    assert width == 32 or means["overlap"].nlargest(2).index.isin(SHARPER).all()
    assert means["ndcg@10"][SHARPER].min() > means["ndcg@10"][POINCARE].max()
    if width >= 32:
        level = means["ndcg@10"][DOT_PRODUCTS]
        assert level.max() < level.min() + 0.0005
        assert abs(level["flat-limit"] - level["dot-product"]) < 0.0002
        assert means["coverage@10"].idxmax() == ("dot-product" if width == 32 else "poincare-fixed")
        assert means["trustworthiness"].idxmin() == "poincare-auto"
        assert means["ndcg@10"]["dot-product"] > means["ndcg@10"][POINCARE].max()
    if width == 64:
        assert (by_seed["dot-product"] > by_seed[POINCARE].max(axis=1)).all()
        valid = sports.pivot(index="seed", columns="head", values="valid")
        assert (valid["dot-product"] > valid[SHARPER].max(axis=1)).all()


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_tuned_heads_on_movielens_are_as_the_study_of_curvature_states(width: int) -> None:
    rows, welch = tuned_heads("ml-1m", width), script("claims").welch_test
    means = rows.drop(columns="data").groupby("head").mean()
    test, valid = means["ndcg@10"], means["valid"]
    for values in (test, valid):
        assert (values[[*SHARPER, *POINCARE]] > values["dot-product"]).all()
    by_seed = rows.pivot(index="seed", columns="head", values="ndcg@10")
    for head in ("dot-product", *POINCARE):
        _, low, high, _ = welch(by_seed["flat-limit"].tolist(), by_seed[head].tolist())
        assert low < 0 < high
    for column in ("coverage@10", "overlap"):
        assert means.loc[SHARPER, column].min() > means.loc[["dot-product", *POINCARE], column].max()
    assert means.loc[POINCARE, "trustworthiness"].min() > means.loc[DOT_PRODUCTS, "trustworthiness"].max()
    if width <= 16:
        assert test.idxmax() == valid.idxmax() == "flat-limit"
    else:
        assert test[POINCARE].min() > test[SHARPER].max()
        assert test.idxmax() == "poincare-fixed"
        assert test.max() - test["flat-limit"] < 0.0017
    if width == 32:
        assert valid.idxmax() == "flat-limit"
    if width == 64:
        assert valid[POINCARE].min() > valid[SHARPER].max()
        first = rows[rows["seed"] == 2020].set_index("head")
        assert first.loc[POINCARE, "ndcg@10"].min() > first.loc[SHARPER, "ndcg@10"].max()
        assert first.loc["flat-limit", "valid"] > first.loc[POINCARE, "valid"].max()
        assert first["ndcg@10"].idxmax() == "poincare-fixed"


def test_the_best_poincare_head_on_movielens_at_64_is_ahead_of_the_flat_limit_but_not_certainly() -> None:
    welch, page = script("claims").welch, " ".join((ROOT / "docs" / "curvature.md").read_text(encoding="utf-8").split())
    wide = tuned_heads("ml-1m", 64)
    test, valid, covered = (
        wide.pivot(index="seed", columns="head", values=column) for column in ("ndcg@10", "valid", "coverage@10")
    )
    assert (test["poincare-fixed"] > test["flat-limit"]).all()
    assert (covered["poincare-fixed"] < covered["flat-limit"]).all()
    for values, words in ((test, "by .0016 (-.0006 to +.0039)"), (valid, "by .0010 (-.0008 to +.0028)")):
        found = welch(values["poincare-fixed"].tolist(), values["flat-limit"].tolist())
        assert found["p"] > 0.05
        assert f"by {found['difference']:.4f} ({found['interval']})".replace("0.", ".") == words
        assert words in page


def test_finished_runs_are_kept_under_their_names_without_paths(tmp_path: Path) -> None:
    keep, runs = script("keep"), tmp_path / "runs"
    runs.mkdir()
    results = {"a/seed-2020": 0.1, "a/seed-2021": 0.2, "b_seed2020": 0.3, "c_seed2022": 0.4, "unfinished": None}
    for place, value in results.items():
        folder = tmp_path / "out" / place
        folder.mkdir(parents=True)
        result = {"test": {} if value is None else {"ndcg@10": value}, "config": {"data_path": "/x", "output_dir": "y"}}
        (folder / "result.json").write_text(json.dumps(result))
    (tmp_path / "out" / "no_result").mkdir()
    (runs / "b.json").write_text(json.dumps({"test": {"ndcg@10": 0.5}}))
    with pytest.raises(SystemExit, match="no finished run unfinished; it has a, a_seed2021, b, c_seed2022"):
        keep.keep(tmp_path / "out", ["unfinished"], runs)
    assert keep.keep(tmp_path / "out", ["a"], runs) == {"a": "new"}
    other = "left as it is: its file has other metrics"
    assert keep.keep(tmp_path / "out", (), runs) == {"a": "there", "a_seed2021": "new", "b": other, "c_seed2022": "new"}
    kept = {file.stem: json.loads(file.read_text()) for file in runs.glob("*.json")}
    assert {name: run["test"]["ndcg@10"] for name, run in kept.items()} == {
        "a": 0.1, "a_seed2021": 0.2, "b": 0.5, "c_seed2022": 0.4,
    }  # fmt: skip
    assert kept["a"]["config"] == {"data_path": None, "output_dir": None}


def test_cuts_of_a_data_set() -> None:
    cuts = script("cuts")
    # user u has the items 0 to u, each user after the one before
    rows = [(str(user), str(item)) for user in range(6) for item in range(user + 1)]
    frame = pd.DataFrame(rows, columns=[cuts.USER, cuts.ITEM]).assign(**{cuts.TIME: range(len(rows))})
    users, newest, items = cuts.cuts(frame, 2).values()
    assert users[cuts.USER].nunique() == 2
    assert len(users) == sum(int(user) + 1 for user in users[cuts.USER].unique())
    assert list(newest.index) == list(range(len(frame) // 2, len(frame)))
    assert set(items[cuts.ITEM]) == {"0", "1"}
    assert all(part.index.is_monotonic_increasing for part in (users, newest, items))


def test_the_runs_of_the_cuts_come_seed_by_seed_and_resume(tmp_path: Path) -> None:
    cuts = script("cuts")
    runs = cuts.plan(tmp_path, [], [3, 4], {})
    names = [(run.model, run.seed, run.folder.relative_to(tmp_path / "runs").as_posix()) for run in runs]
    assert [name[:2] for name in names[:2]] == [("EASER", 3), ("PureSVDN", 3)]
    assert [seed for _, seed, _ in names] == [3] * 6 + [4] * 4
    assert names[-1] == ("SASRecCE", 4, "ml-100k_SASRecCE/seed-4")
    assert all(run.keys["n_threads"] == 1 and not run.keys["resume"] for run in runs)


def test_the_leaderboard_is_written_by_its_script() -> None:
    board = script("leaderboard")
    written = re.sub(r"\n<details>.*?</details>\n", "", board.PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert written == board.text(commands=False), "run python results/leaderboard.py"


def test_a_row_of_the_leaderboard_is_the_best_setting_by_validation() -> None:
    board = script("leaderboard")

    def result(
        model: str, valid: float, test: float, *, refit: bool = False, windows: str = "all"
    ) -> dict[str, object]:
        one = {"model": model, "dataset": "ml-100k", "protocol": "leave-one-out", "exclude_seen": True, "best_epoch": 3}
        one |= {"eval_args": {"split": {"LS": "valid_and_test"}, "mode": {"valid": "full", "test": "full"}}}
        one |= {"n_test_cases": 9, "data_fingerprint": "abc", "seconds": {"train": 90.0}}
        one |= {"config": {"refit": refit, "train_windows": windows}}
        return one | {"valid": {"ndcg@10": valid}, "test": {"ndcg@10": test, "hit@10": 2 * test}}

    results = {
        "a": result("A", 0.2, 0.1, windows="last"), "a_seed2021": result("A", 0.3, 0.12, windows="last"),
        "a_worse": result("A", 0.24, 0.3), "a_refit": result("A", 0.2, 0.4, refit=True), "b": result("B", 0.1, 0.2),
    }  # fmt: skip
    other = result("B", 0.1, 0.2)
    other["eval_args"]["split"] = {"GT": {"valid": 0.8, "test": 0.9, "target": "last", "unknown": "miss"}}
    other["protocol"], results["c"] = "global timepoint", other
    sections = board.sections(results)
    protocols = [section[1] for section in sections]
    assert protocols == [
        "leave-one-out, all items ranked",
        "global timepoint, last item of each user, unknown targets are misses, all items ranked",
    ]
    chosen = board.chosen(next(iter(sections.values())), results)
    assert chosen == [["a", "a_seed2021"], ["a_refit"], ["b"]]
    for default in ("last_FMLPRecMemory_default", "timepoint_FMLPRecMemory"):
        names = {default: 0.1, "last_FMLPRecMemory_default_windows": 0.3, "timepoint_FMLPRecMemory_ease": 0.2}
        own = {name: result("FMLPRecMemory", valid, 0.1) for name, valid in names.items()}
        assert board.chosen({name: [name] for name in own}, own) == [[default]]
    row = board.row_of([results[name] for name in chosen[0]])
    assert row["NDCG@10"] == ".1100 ± .0141"
    assert (row["seeds"], row["minutes"], row["windows"], row["refit"]) == ("2", "2", "last", "no")
    text = "\n".join(board.section_text("t", [row], []))
    assert text.splitlines()[-1] == "| A | .1100 ± .0141 | .2200 ± .0283 | 2 | 2 | last | no | left out |"


def named(texts: list[str]) -> set[str]:
    """Return all words of ``texts`` that could be the name of a file."""
    return {word.strip(".") for text in texts for word in re.findall(r"[\w.-]+", text)}


def test_every_result_file_is_named_by_a_page_a_script_or_a_test() -> None:
    """What nobody names is no evidence; the leaderboard lists whatever is there, so it does not count."""
    folders = ("results", "docs", "tests", "benchmarks", "examples", "properties", "recbole_hyper")
    files = [
        ROOT / "README.md",
        ROOT / "Makefile",
        *(file for folder in folders for file in (ROOT / folder).rglob("*")),
    ]
    kinds = {".md", ".py", ".yaml", ".txt", ".ipynb", ""}
    read = [file for file in files if file.is_file() and file.suffix in kinds and file.name != "leaderboard.md"]
    words = named([file.read_text(encoding="utf-8") for file in read])
    results = [file for file in RESULTS.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert len(results) > 200
    # a row names its first seed
    unnamed = [file for file in results if not {file.name, file.stem, re.sub(r"_seed\d+$", "", file.stem)} & words]
    assert [file.relative_to(RESULTS).as_posix() for file in unnamed] == []


def test_a_file_that_is_part_of_a_longer_name_is_not_named() -> None:
    assert "a_b" not in named(["see `a_b_seed2021` and a_b-c."])
    assert {"a_b", "c.csv"} <= named(["[a_b](x/c.csv)."])


def test_lists_of_cold_items_without_training_are_those_of_the_page() -> None:
    table = pd.read_csv(RESULTS / "cold_items.csv").set_index(["dataset", "list"])
    page = (ROOT / "docs/features.md").read_text(encoding="utf-8")
    for (_, name), row in table.iterrows():
        text = f"{row['ndcg@10']:.3f}".removeprefix("0")
        if name == "random order":
            assert row["ndcg@10"] == pytest.approx(
                sum(1 / math.log2(1 + rank) for rank in range(1, 11)) / row["cold items"], abs=1e-6
            )
            assert row["hit@10"] == pytest.approx(10 / row["cold items"], abs=1e-6)
        else:
            text += f" ({row['low']:.3f} to {row['high']:.3f})".replace("0.", ".")
        assert f"| {text} |" in page
    for name, dataset in (("ml-100k_cold_items_SASRecCE_text", "films"), ("ml-1m_cold_items_SASRecCE_text", "ml-1m")):
        content = json.loads((RESULTS / "runs" / f"{name}.json").read_text())
        assert content["n_test_cases"] == table.loc[(dataset, "nearest text"), "cases"]
        assert (
            content["protocol_counts"]["items drawn for the test"] == table.loc[(dataset, "nearest text"), "cold items"]
        )


def variant(data: Path, monkeypatch: pytest.MonkeyPatch, **keys: Any) -> tuple[Any, Any]:
    """Return a variant of the default model and its first batch; the registry forgets it after the test."""
    monkeypatch.setattr(registry, "_registry", {kind: dict(known) for kind, known in registry._registry.items()})
    model = plugin_files.load(RESULTS / "network_variants.py").FMLPRecMemoryVariant
    settings = {**SMALL, "data_path": str(data), "hidden_dropout_prob": 0.0, "label_smoothing": 0.0, **keys}
    config = Config(model, "random", config_dict=settings)
    dataset = SequenceDataset(config)
    split = make_split(dataset.store, config)
    with OwnDraws(0):
        made, loader, _ = build(config, dataset, split, split.train_lengths)
    return made, next(iter(loader))


def test_near_targets_are_soft_labels(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = variant(random_data, monkeypatch, near_targets=0.3)
    found = model.calculate_loss(batch)
    ((states, _),), targets = model._states, batch["target_list"][batch["target_list"] > 0]
    labels = torch.zeros(len(targets), model.n_items)
    labels.scatter_add_(1, model._near[targets], 0.3 * model._rates[targets])
    labels[torch.arange(len(targets)), targets] += 1 - 0.3 * model._rates[targets].sum(1)
    logits = model.head.logits(states)[:, 1:]
    torch.testing.assert_close(found, torch.nn.functional.cross_entropy(logits, labels[:, 1:]))


def test_near_items_replace_items_of_a_history(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = variant(random_data, monkeypatch, near_items=0.5)
    before, (after, _) = batch["item_id_list"], model._histories(batch)
    changed = before != after
    assert 0.3 < (changed.sum() / (before > 0).sum()) < 0.7
    assert all(new in model._near[old] for old, new in zip(before[changed], after[changed], strict=True))
    assert torch.equal(model.eval()._histories(batch)[0], before)


def test_two_masks_of_dropout_agree_without_dropout(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    once, batch = variant(random_data, monkeypatch)
    twice, _ = variant(random_data, monkeypatch, dropout_twice=1.0)
    torch.testing.assert_close(twice.calculate_loss(batch), once.calculate_loss(batch))
    losses = []
    for weight in (1e-9, 1.0):
        noisy, _ = variant(random_data, monkeypatch, dropout_twice=weight, hidden_dropout_prob=0.5)
        torch.manual_seed(0)
        losses.append(noisy.calculate_loss(batch))
    assert losses[0] < losses[1]


def test_reversed_histories_have_reversed_targets(random_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = variant(random_data, monkeypatch, reversed_rows=1.0)
    turned = script("network_variants").reversed_rows
    items = torch.tensor([[1, 2, 3, 0], [4, 5, 6, 7], [4, 5, 0, 0]])
    targets = torch.tensor([[2, 3, 9, 0], [0, 0, 7, 8], [5, 0, 0, 0]])
    new_items, new_targets = turned(items, torch.tensor([3, 4, 2]), targets)
    # the first two targets of the second row stay untrained; the last target of the third is not known
    assert new_items.tolist() == [[9, 3, 2, 0], [8, 7, 6, 5], [4, 5, 0, 0]]
    assert new_targets.tolist() == [[3, 2, 1, 0], [0, 0, 5, 4], [5, 0, 0, 0]]
    straight, _ = variant(random_data, monkeypatch)
    found = model.calculate_loss(batch)
    assert found != straight.calculate_loss(batch)
    new_items, new_targets = turned(batch["item_id_list"], batch["item_length"], batch["target_list"])
    batch["item_id_list"], batch["target_list"] = new_items, new_targets
    torch.testing.assert_close(found, straight.calculate_loss(batch))


def test_the_spectral_start_has_the_deviation_of_the_random_one(
    random_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, _ = variant(random_data, monkeypatch)
    spectral, _ = variant(random_data, monkeypatch, spectral_start=True)
    first, second = random.item_embedding.weight[1:], spectral.item_embedding.weight[1:]
    assert not torch.equal(first, second)
    assert second.std().item() == pytest.approx(first.std().item(), rel=0.1)


def test_other_memories_are_compared_on_the_cases_of_a_run(random_data: Path, tmp_path: Path) -> None:
    """A row of several runs is the mean over all choices of so many of their networks."""
    writer = script("memory_variants")
    writer.FILE, writer.NEIGHBOURS, folders = tmp_path / "variants.csv", 5, []
    for seed in (1, 2):
        folders.append(tmp_path / str(seed))
        keys = {"data_path": str(random_data), "seed": seed, "memory_ease": True, "output_dir": str(folders[-1])}
        run("FMLPRecMemory", "random", config_dict={**SMALL, **keys})
    writer.main([str(folder) for folder in folders])
    table = pd.read_csv(writer.FILE).set_index("variant")
    runs = [writer.Run(str(folder)) for folder in folders]
    assert table.loc["the network alone", "valid ndcg@10"] == round(writer.ndcg(runs[0].ranks(runs[0].alone.copy())), 4)

    def best(network: Any) -> float:
        runs[0].network = network
        return max(writer.ndcg(r) for *_, r in runs[0].mixtures(writer.distributions(runs[0], runs[0].memory)))

    networks = [one.network for one in runs]
    one, two = (f"the mean of the networks of {count} of 2 seeds, and the memory" for count in (1, 2))
    assert table.loc[one, "valid ndcg@10"] == pytest.approx(sum(map(best, networks)) / 2, abs=1e-4)
    assert table.loc[two, "valid ndcg@10"] == pytest.approx(best(sum(networks) / 2), abs=1e-4)
    assert (table["cases"] == len(runs[0].cases)).all()


def test_rerankers_are_compared_on_the_cases_of_runs(
    random_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = script("rerankers")
    writer.FILE, folders = tmp_path / "rerankers.csv", []
    monkeypatch.setattr("recbole_hyper.models.reranker._FEWEST", 1)
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        shutil.copy(random_data / "random" / "random.inter", tmp_path / name / f"{name}.inter")
        folders.append(tmp_path / "runs" / name)
        run("FMLPRecMemory", name, config_dict={**SMALL, "data_path": str(tmp_path), "output_dir": str(folders[-1])})
    table = writer.main([str(folder) for folder in folders]).set_index(["data", "reranker"])
    assert list(table.loc["one"].index[:2]) == ["none", "all evidence"]
    assert table.index[-1] == ("two", "of one")
    name, cases, _ = writer.read(str(folders[0]))
    assert name == "one"
    before = writer.ndcg(cases.scores, cases.places) / len(cases.folds)
    assert table.loc[("one", "none"), "valid ndcg@10"] == round(before, 4)
    again = writer.Reranker()
    again.fit(cases)
    assert table.loc[("one", "all evidence"), "valid ndcg@10"] == round(
        before + cases.gain(again(cases.evidence, cases.folds)), 4
    )
    other = writer.read(str(folders[1]))[2]
    expected = before + cases.gain(other(cases.evidence))
    assert table.loc[("one", "of two"), "valid ndcg@10"] == round(expected, 4)
