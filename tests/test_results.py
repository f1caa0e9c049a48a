"""What README and results/ print is what their scripts make of the result files."""

import functools
import json
import math
import re
import statistics
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import yaml
from matplotlib.testing.compare import compare_images

from recbole_hyper import run
from recbole_hyper.models.data_defaults import RULES
from tests import conftest
from tests.conftest import SMALL

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"


@functools.cache
def script(name: str) -> ModuleType:
    return conftest.script(RESULTS / f"{name}.py")


def runs() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = script("table").runs()
    return rows


def group(name: str) -> list[dict[str, Any]]:
    return [runs()[one] for one in script("table").seeds_of(name)]


def words(file: str) -> str:
    return " ".join((ROOT / file).read_text(encoding="utf-8").split())


def test_finished_runs_are_rows_and_a_run_that_is_there_is_replaced(random_data: Path, tmp_path: Path) -> None:
    keys = {**SMALL, "data_path": str(random_data), "n_layers": 1, "epochs": 1, "confidence": 0.95}
    results = {}
    for seed, place in ((2020, "a/seed-2020"), (2021, "a/seed-2021")):
        own = {**keys, "seed": seed, "output_dir": str(tmp_path / "out" / place)}
        results[seed] = run("SASRecCE", "random", config_dict=own)
    (tmp_path / "out" / "no_result").mkdir()
    (tmp_path / "out" / "unfinished").mkdir()
    (tmp_path / "out" / "unfinished" / "result.json").write_text(json.dumps({"test": {}}))
    collect, table, file = script("collect"), script("table"), tmp_path / "runs.csv"
    assert collect.collect([tmp_path / "out"], file) == {"a": "new", "a_seed2021": "new"}
    first = file.read_text()
    assert collect.collect([tmp_path / "out" / "a" / "seed-2020"], tmp_path / "one.csv") == {"seed2020": "new"}
    assert collect.collect([tmp_path / "out"], file) == {"a": "replaced", "a_seed2021": "replaced"}
    found = table.read_runs(file)
    for name, seed in (("a", 2020), ("a_seed2021", 2021)):
        row, result = found[name], results[seed]
        assert (row["model"], row["dataset"], row["seed"]) == ("SASRecCE", "random", seed)
        assert row["fingerprint"] == result["data_fingerprint"]
        for part in ("valid", "test"):
            assert row[f"{part} ndcg@10"] == result[part]["ndcg@10"]
        assert table.interval(row, "ndcg@10") == pytest.approx(result["test_intervals"]["ndcg@10"], abs=1e-7)
        assert row["keys"]["n_layers"] == "1"
        assert str(tmp_path) not in first
    assert "--n_layers=1" in table.command(found["a"])
    assert "--seed=2021" in table.command(found["a_seed2021"])


@pytest.mark.parametrize("place", ["results/first.png", "docs/images/curvature_tuned.png"])
def test_figures_are_drawn_from_the_table(place: str, tmp_path: Path) -> None:
    script("figures").FIGURES[place]().savefig(tmp_path / "drawn.png", dpi=110)
    different = compare_images(str(ROOT / place), str(tmp_path / "drawn.png"), tol=2)
    assert different is None, f"run python results/figures.py {place}"


def test_pages_are_short() -> None:
    written = [page for page in RESULTS.glob("*.md") if page.name not in ("README.md", "readme_template.md")]
    for page in [*written, *(ROOT / "docs").glob("leaderboard*.md")]:
        lines = page.read_text(encoding="utf-8").splitlines()
        assert len(lines) <= (120 if page.name == "claims.md" else 200), page.name
        assert max(map(len, lines)) <= 140, page.name
    paragraph = (ROOT / "README.md").read_text(encoding="utf-8").split("## Results\n\n")[1].split("\n\n")[0]
    assert paragraph.count("\n") < 10


def test_readme_is_written_by_its_template() -> None:
    claims = script("claims")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text == claims.readme(), "edit results/readme_template.md, then run python results/claims.py"


def test_the_sentences_about_the_default_model_are_true_of_the_table() -> None:
    claims = script("claims")
    everywhere = claims.TABLE | claims.APART
    readme, page = words("README.md"), words("results/claims.md")
    # every seed
    assert [title for name, title in everywhere.items() if not claims.ahead(name)] == ["Foursquare"]
    best = "is above the best published NDCG@10 that we found on seven data sets, but on Foursquare"
    assert f"Every seed {best}" in readme
    assert "Every seed of the default is above the best published NDCG@10 without a mark, but on Foursquare" in page
    # without the reranker
    groups = {name: (claims.without_reranker(name), group(f"{name}_{claims.DEFAULT}_no_rerank")) for name in everywhere}
    assert [len(runs) for runs, _ in groups.values()] == [3] * 7
    means, former = (
        {
            name: statistics.fmean(run["test ndcg@10"] for run in runs[place])
            for name, runs in groups.items()
            if runs[place]
        }
        for place in (0, 1)
    )
    assert len(former) == 6  # known when the search for the reranker began
    below = [everywhere[name] for name, value in former.items() if value < claims.published(name)[0]["ndcg@10"]]
    assert below == ["Amazon Toys", "LastFM", "Foursquare"]
    assert "when six test figures without it were known, three of them below the best published row" in readme
    for name, value in means.items():
        assert name not in claims.TABLE or claims.short(value) in readme
        assert claims.short(value) in page
    own = [run["test ndcg@10"] for run in claims.of_default("foursquare-sequences")]
    assert abs(statistics.fmean(own) - means["foursquare-sequences"]) < max(own) - min(own)
    assert "the reranker changes less than the seeds differ" in page.replace("\n", " ")
    # the row with a mark
    (marked,) = (row for row in claims.published("ml-1m", marked=True) if row["model"] == "HSTU-large with MoL")
    own = claims.of_default("ml-1m")
    assert marked["ndcg@10"] < min(run["test ndcg@10"] for run in own)
    low, high = script("table").interval(own[0], "hit@10")
    assert low < marked["hit@10"] < high


def test_the_sentences_about_rerankers_of_other_data_are_true() -> None:
    """The sentences in docs/models/memory.md and claims.md."""
    table = pd.read_csv(RESULTS / "rerankers.csv").set_index(["data", "reranker"])["gain in per cent"]
    amazon = [f"amazon-{name}-sequences" for name in ("beauty", "sports", "toys")]
    for data in (*amazon, "lastfm-sequences"):
        gains = [table[data, f"of {other}"] for other in amazon if other != data]
        assert min(gains) > (0.6 if data in amazon else 0.5) * table[data, "all evidence"]
    movielens, yelp = (table[data].filter(regex="^of ") for data in ("ml-1m", "yelp-sequences"))
    page = words("docs/models/memory.md")
    assert (table["ml-1m", "all evidence"], movielens.max(), movielens.min()) == (4.6, -4.1, -13.3)
    assert "MovieLens-1M gains 4.6 % with its own numbers and loses 4.1 to 13.3 % with those of others" in page
    assert (table["yelp-sequences", "all evidence"], yelp.max()) == (10.4, 4.1)
    assert "Yelp gains 10.4 % with its own and at most 4.1 % with those of others" in page


def test_the_sentences_about_numbers_of_the_reranker_are_true() -> None:
    """The sentence in records.md: each row with another number beside the one with all evidence."""
    table = pd.read_csv(RESULTS / "rerankers.csv").set_index(["data", "reranker"])["valid ndcg@10"].unstack()
    changed = table[[name for name in table if re.search("items|units|steps|rate|decay", name)]]
    changes = 100 * (changed.div(table["all evidence"], axis=0) - 1).T
    bounds = {"lastfm-sequences": 8.0, "yelp-sequences": 3.1}
    assert all(changes[data].abs().max() < bounds.get(data, 1.4) for data in changes)
    assert (changes.min(axis=1) < 0).all()
    for cases, loss in {"20,000": 0.024, "5,000": 0.063}.items():
        assert (table[f"fitted to {cases} cases"] / table["all evidence"]).min() == pytest.approx(1 - loss, abs=0.002)
    scaled, not_scaled = (table[f"fitted to 1,000 cases{text}"].dropna() for text in ("", ", not scaled"))
    assert set(scaled.index[scaled <= not_scaled]) <= {"ml-1m", "lastfm-sequences"}


def test_the_sentences_about_the_hyperbolic_head_are_true() -> None:
    claims, readme = script("claims"), words("README.md")
    assert "the hyperbolic head shows no reliable gain over a dot product of the same width" in readme
    assert "on sparse data it costs accuracy at widths of 16 to 64" in readme
    rows = [row for row in claims.claims() if row["seeds"] > 1]
    certain = [
        row
        for row in rows
        if row["of"].startswith("Poincare - Euclidean") and (row["Holm"] == "< .01" or float(row["Holm"]) < 0.05)
    ]
    assert certain
    assert all(row["difference"] < 0 and "Amazon" in row["of"] and row["row"] != "d 8" for row in certain)
    (flat,) = (row for row in rows if row["of"].startswith("Poincare, c .0003"))
    assert flat["difference"] > 0
    # docs/curvature.md: the flat limit gains exactly as much
    (same,) = (row for row in rows if row["of"].startswith("flat limit - Poincare, c .0003"))
    assert abs(same["difference"]) < 0.0001
    assert same["p"] == "0.96"
    page = words("docs/curvature.md")
    assert "with a p-value of .96" in page
    assert "costs accuracy on sparse data at widths of 16 to 64 (at 8 it leads on Beauty)" in page
    tuned = tuned_heads("amazon-beauty-sequences", 8).pivot(index="seed", columns="head", values="ndcg@10")
    assert (tuned["poincare-auto"] > tuned["dot-product"]).all()


def test_the_figures_that_pages_state_by_hand_are_those_of_the_table() -> None:
    for one in (seed for data in json.loads((RESULTS / "recboard.json").read_text()) for seed in data["runs"]):
        assert one["metrics"]["test"]["NDCG@10"] == pytest.approx(runs()[one["id"]]["test ndcg@10"], abs=1e-6)
    text = script("table").figure_text
    hstu = words("docs/models/hstu.md")
    assert f"`HSTU` has NDCG@10 {text(group('lastfm-sequences_HSTU'), 'ndcg@10')}" in hstu
    assert f"`FuXi` {text(group('lastfm-sequences_FuXi'), 'ndcg@10')}" in hstu
    assert f"`HSTU` {text(group('ml-100k_HSTU'), 'ndcg@10')[:5]} on ml-100k" in hstu
    windows = {
        name: text(group(f"amazon-beauty-sequences_FMLPRecMemory_{name}"), "ndcg@10", "valid")[:5]
        for name in ("default_windows_last", "windows_last", "h200")
    }
    comparisons = words("docs/comparisons.md")
    assert f"with the newest window alone ({windows['default_windows_last']}, and" in comparisons
    assert f"are a little higher ({windows['windows_last']}, {windows['h200']})" in comparisons


def test_a_run_of_every_published_row_with_seeds_names_its_deviation() -> None:
    rows = [row for rows in yaml.safe_load((RESULTS / "published.yaml").read_text()).values() for row in rows]
    several = [row for row in rows if row.get("seeds", 1) > 1]
    assert len(several) == 6
    assert all(row["seeds"] == 5 and 0 < row["deviation"] < 0.002 for row in several)


def test_differences_are_those_of_the_result_files() -> None:
    claims = script("claims")
    assert (RESULTS / "claims.md").read_text(encoding="utf-8") == claims.claims_text()
    rows = claims.claims()
    assert len(rows) > 15
    assert all((row["seeds"] == 1) == (row["interval"] == "one seed") for row in rows)


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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_result_files_give(name: str) -> None:
    pages = script("pages")
    written = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert written == pages.page_text(pages.pages()[name]), "run python results/pages.py"


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
    value = pages.short(runs()["ml-1m_FMLPRecCE_start"]["test ndcg@10"])
    assert pages.filled("{ml-1m_FMLPRecCE_start:test.ndcg@10} here") == f"{value} here"


def setting(run: dict[str, Any]) -> dict[str, str]:
    """Return the keys of a run's command that change what is trained and what is ranked."""
    keys = {"model": run["model"], "dataset": run["dataset"], **run["keys"]}
    without_effect = {"seed", "metrics", "topk", "init_from"}
    if str(run["epochs"]) == keys.get("epochs", str(run["epochs"])):
        without_effect.add("stopping_step")
    # an estimated curvature starts at the estimate
    if keys.get("curvature") == "auto":
        without_effect.add("curvature_init")
    # the default
    if keys.get("inner_size") == str(4 * int(run["width"] or 0)):
        without_effect.add("inner_size")
    # runs before these keys had no bound
    without_effect |= {key for key in ("softmax_items", "valid_cases") if keys.get(key) == "null"}
    return {key: text for key, text in keys.items() if key not in without_effect}


def page_rows() -> list[dict[str, Any]]:
    return [
        row for page in script("pages").pages().values() for table in page["tables"] for row in table.get("rows", ())
    ]


def test_rows_of_several_seeds_differ_in_the_seed_alone() -> None:
    """A row of several seeds has one setting; a mean over runs of different settings would be no mean over seeds."""
    pages, seeds_of = script("pages"), script("table").seeds_of
    groups = {tuple(run["run"] for run in pages.runs_of(row)) for row in page_rows()}
    groups |= {tuple(seeds_of(name)) for name in {re.sub(r"_seed\d+$", "", name) for name in runs()}}
    assert sum(len(group) > 1 for group in groups) > 80
    for names in groups:
        found = [runs()[name] for name in names]
        keys = ("model", "dataset", "protocol", "cases", "exclude_seen", "fingerprint")
        assert len({tuple(run[key] for key in keys) for run in found}) == 1, names
        assert len({run["seed"] for run in found}) == len(found), names
        assert all(setting(run) == setting(found[0]) for run in found), names
        started = {re.sub(r"_seed\d+$", "", run["keys"].get("init_from", "")) for run in found}
        assert len(started) == 1, names


def test_rows_with_no_setting_changed_have_the_settings_that_their_data_give() -> None:
    """A command shows what auto chose; what it shows beside that was changed."""
    rows = [row for row in page_rows() if "no setting changed" in row["row"]]
    assert len(rows) > 15
    expected = {"model", "dataset", "config_files", "refit", "eval_args", *RULES}
    for row in rows:
        for one in script("pages").runs_of(row):
            keys = setting(one).keys() - expected
            assert keys == ({"train_windows"} if "but the newest window alone" in row["row"] else set()), one["run"]


def test_rows_of_a_table_with_one_command_are_of_different_machines() -> None:
    """A row whose command gives another row is not what its command gives."""
    pages = script("pages")
    for page in pages.pages().values():
        for table in page["tables"]:
            found: dict[Any, str] = {}
            for row in table.get("rows", ()):
                first = pages.runs_of(row)[0]
                machine = first["device"].partition(" ")[0], first["threads"]
                other = found.setdefault((script("table").command(first), machine), row["row"])
                assert other == row["row"], f"{table['title']}: {row['row']}, {other}"


def test_claims_compare_runs_that_differ_in_what_the_claim_names() -> None:
    """In the head or the reranking; in the learning rate where the row says so."""
    named = {"model", "geometry", "curvature", "curvature_init", "temperature", "memory_rerank"}
    for pairs in script("claims").facts()["differences"]:
        for row in pairs["rows"]:
            first, second = (setting(runs()[row[side]]) for side in ("first", "second"))
            if (run := runs()[row["second"]]["keys"]).get("init_from"):  # the first one's weights and settings
                assert [run["init_from"], run["epochs"], run["memory_rerank"]] == [
                    f"saved/{row['first']}",
                    "0",
                    "false",
                ]
                continue
            others = {key for key, _ in first.items() ^ second.items()} - named
            assert others == ({"learning_rate"} if "rates" in row["row"] else set())


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
    values = [run["test ndcg@10"] for run in group("amazon-beauty-sequences_flat_16")]
    assert len(values) == 3
    assert row.split(" | ")[2] == f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}".replace("0.", ".")


def test_the_default_is_ahead_of_three_others_on_all_data() -> None:
    """The sentence in results/datasets.md; EASE^R, PureSVD-N and SASRecCE have a row for every data set.

    What depends on a seed has three at least.
    """
    pages = script("pages")
    (table,) = (one for one in pages.pages()["datasets"]["tables"] if "beside EASE^R" in one["title"])
    assert "The default model is ahead of the three others on all of them." in " ".join(table["about"].split())
    found: dict[str, dict[str, float]] = {}
    for row in table["rows"]:
        (data, model), results = row["row"].rsplit(", ", 1), pages.runs_of(row)
        found.setdefault(data, {})[model] = statistics.fmean(result["test ndcg@10"] for result in results)
        assert model in ("EASE^R", "PureSVD-N") or {2020, 2021, 2022} <= {result["seed"] for result in results}
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
def test_the_default_is_ahead_under_a_timepoint(name, default, refit, data, models) -> None:
    """The sentences in docs/models/memory.md."""
    own = group(name.format(data=data, model="FMLPRecMemory") + default)
    others = [runs()[name.format(data=data, model=model)] for model in models]
    for result in own + others:
        assert result["refit"] is refit
        assert all(result[key] == own[0][key] for key in ("cases", "fingerprint", "protocol"))
    assert min(one["test ndcg@10"] for one in own) > max(one["test ndcg@10"] for one in others)


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


BEAUTY, SPORTS, MOVIES = "amazon-beauty-sequences", "amazon-sports-sequences", "ml-1m"
WIDTHS = (8, 16, 32, 64)
FROM_FLAT_TO_CURVED = ["learned-temperature", *POINCARE, "dot-product"]
# what docs/curvature.md states: data, widths, column, of each "seed" or of the "mean", heads and the heads above them
ABOVE = [
    (BEAUTY, WIDTHS, "ndcg@10", "seed", POINCARE, SHARPER),
    (BEAUTY, WIDTHS, "ndcg@10", "seed", ["poincare-auto"], ["poincare-fixed"]),
    (BEAUTY, (8, 16), "ndcg@10", "seed", ["dot-product"], ["poincare-fixed"]),
    (BEAUTY, (8,), "ndcg@10", "seed", ["dot-product"], ["poincare-auto"]),
    (BEAUTY, (16,), "ndcg@10", "mean", ["poincare-auto"], ["dot-product"]),
    (BEAUTY, (16,), "overlap", "mean", POINCARE, ["dot-product"]),
    (BEAUTY, (64,), "ndcg@10", "seed", POINCARE, ["dot-product"]),
    (BEAUTY, (64,), "coverage@10", "mean", DOT_PRODUCTS, POINCARE),
    (BEAUTY, WIDTHS, "trustworthiness", "mean", POINCARE, DOT_PRODUCTS),
    (SPORTS, WIDTHS, "trustworthiness", "mean", POINCARE, DOT_PRODUCTS),
    (SPORTS, (8, 16, 64), "ndcg@10", "seed", POINCARE, ["flat-limit"]),
    (SPORTS, (32,), "ndcg@10", "seed", POINCARE, ["learned-temperature"]),
    (SPORTS, WIDTHS, "ndcg@10", "mean", POINCARE, SHARPER),
    (SPORTS, (32, 64), "ndcg@10", "mean", POINCARE, ["dot-product"]),
    (SPORTS, (64,), "ndcg@10", "seed", POINCARE, ["dot-product"]),
    (SPORTS, (64,), "valid", "seed", SHARPER, ["dot-product"]),
    (MOVIES, WIDTHS, "ndcg@10", "mean", ["dot-product"], [*SHARPER, *POINCARE]),
    (MOVIES, WIDTHS, "valid", "mean", ["dot-product"], [*SHARPER, *POINCARE]),
    *((MOVIES, WIDTHS, name, "mean", ["dot-product", *POINCARE], SHARPER) for name in ("coverage@10", "overlap")),
    (MOVIES, WIDTHS, "trustworthiness", "mean", DOT_PRODUCTS, POINCARE),
    (MOVIES, (32, 64), "ndcg@10", "mean", SHARPER, POINCARE),
    (MOVIES, (64,), "valid", "mean", SHARPER, POINCARE),
]
# the head whose mean is the largest, or the smallest
LARGEST = [
    (BEAUTY, (8, 16, 32), "overlap", "flat-limit"),
    *((BEAUTY, (64,), name, "poincare-fixed") for name in ("coverage@10", "overlap")),
    (SPORTS, (8,), "overlap", "learned-temperature"),
    (SPORTS, (16, 64), "overlap", "flat-limit"),
    *((SPORTS, (32,), name, "dot-product") for name in ("coverage@10", "overlap")),
    (SPORTS, (64,), "coverage@10", "poincare-fixed"),
    *((MOVIES, (8, 16), name, "flat-limit") for name in ("ndcg@10", "valid")),
    (MOVIES, (32, 64), "ndcg@10", "poincare-fixed"),
    (MOVIES, (32,), "valid", "flat-limit"),
]
SMALLEST = [(SPORTS, WIDTHS, "ndcg@10", "poincare-auto"), (SPORTS, (32, 64), "trustworthiness", "poincare-auto")]


def means_of(data: str, width: int) -> pd.DataFrame:
    return tuned_heads(data, width).drop(columns="data").groupby("head").mean()


@pytest.mark.parametrize(("data", "widths", "column", "of", "below", "above"), ABOVE)
def test_heads_are_above_others_as_the_study_of_curvature_states(data, widths, column, of, below, above) -> None:
    for width in widths:
        by_seed = tuned_heads(data, width).pivot(index="seed", columns="head", values=column)
        table = by_seed if of == "seed" else by_seed.mean().to_frame().T
        assert (table[above].min(axis=1) > table[below].max(axis=1)).all(), width


def test_the_largest_and_smallest_heads_are_those_that_the_study_of_curvature_states() -> None:
    for data, widths, column, head in LARGEST:
        assert [means_of(data, width)[column].idxmax() for width in widths] == [head] * len(widths), (data, column)
    for data, widths, column, head in SMALLEST:
        assert [means_of(data, width)[column].idxmin() for width in widths] == [head] * len(widths), (data, column)


def test_heads_on_beauty_fall_from_flat_to_curved_at_small_widths() -> None:
    for width in (8, 16):
        rows = tuned_heads(BEAUTY, width)
        by_seed = rows.pivot(index="seed", columns="head", values="ndcg@10")
        assert (by_seed[POINCARE].diff(axis=1).iloc[:, 1:] < 0).all(axis=None)
        assert (means_of(BEAUTY, width).loc[FROM_FLAT_TO_CURVED, "coverage@10"].diff().dropna() < 0).all()
        assert (rows[rows["head"] == "poincare-learned"]["theta"] < 0.02).all()
    assert (means_of(BEAUTY, 8).loc[FROM_FLAT_TO_CURVED, "overlap"].diff().dropna() < 0).all()


@pytest.mark.parametrize("data", [BEAUTY, SPORTS])
@pytest.mark.parametrize("width", WIDTHS)
def test_sharper_heads_cover_more_but_at_one_width(data: str, width: int) -> None:
    covered = means_of(data, width)["coverage@10"]
    assert (covered[SHARPER] > covered["dot-product"]).tolist() == [(data, width) != (SPORTS, 32)] * 2


def test_what_changes_with_the_width() -> None:
    gains = [means["flat-limit"] / means["dot-product"] for means in (means_of(BEAUTY, w)["ndcg@10"] for w in WIDTHS)]
    assert gains == sorted(gains, reverse=True)
    for data in (BEAUTY, MOVIES):
        temperatures = [means_of(data, width)["theta"]["learned-temperature"] for width in WIDTHS]
        assert temperatures == sorted(temperatures)
        assert temperatures[-1] < 1


@pytest.mark.parametrize(("width", "lower"), [(8, 7), (16, 4), (32, 5 / 2), (64, 2)])
def test_tuned_heads_on_sports_are_as_the_study_of_curvature_states(width: int, lower: float) -> None:
    means = means_of(SPORTS, width)
    by_seed = tuned_heads(SPORTS, width).pivot(index="seed", columns="head", values="ndcg@10")
    assert width == 8 or (by_seed.idxmin(axis=1) == "poincare-auto").all()
    assert abs(means["theta"]["poincare-auto"] / means["theta"]["poincare-learned"] - lower) < 0.07 * lower
    assert width == 32 or means["overlap"].nlargest(2).index.isin(SHARPER).all()
    if width >= 32:
        level = means["ndcg@10"][DOT_PRODUCTS]
        assert level.max() < level.min() + 0.0005
        assert abs(level["flat-limit"] - level["dot-product"]) < 0.0002


@pytest.mark.parametrize("width", WIDTHS)
def test_no_head_on_movielens_is_certainly_above_the_flat_limit(width: int) -> None:
    rows, welch = tuned_heads(MOVIES, width), script("claims").welch_test
    by_seed = rows.pivot(index="seed", columns="head", values="ndcg@10")
    for head in ("dot-product", *POINCARE):
        _, low, high, _ = welch(by_seed["flat-limit"].tolist(), by_seed[head].tolist())
        assert low < 0 < high
    if width >= 32:
        test = means_of(MOVIES, width)["ndcg@10"]
        assert test.max() - test["flat-limit"] < 0.0017
    if width == 64:
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


@pytest.mark.parametrize("page", ["leaderboard.md", "leaderboard-other.md", "leaderboard-time.md"])
def test_the_leaderboard_is_written_by_its_script(page: str) -> None:
    board = script("leaderboard")
    assert (board.DOCS / page).read_text(encoding="utf-8") == board.text(page), "run python results/leaderboard.py"


def test_a_row_of_the_leaderboard_is_the_best_setting_by_validation() -> None:
    board = script("leaderboard")

    def row(
        name: str, model: str, valid: float, test: float, *, windows: str = "all", refit: bool = False, **keys: str
    ) -> dict[str, Any]:
        one = {"run": name, "model": model, "dataset": "ml-100k", "protocol": "leave-one-out", "exclude_seen": True}
        one |= {"cases": 9, "fingerprint": "abc", "minutes": 1.5, "keys": keys, "windows": windows, "refit": refit}
        one |= {"valid ndcg@10": valid, "test ndcg@10": test, "test hit@10": 2 * test}
        return one | {f"test {metric} {end}": None for metric in ("ndcg@10", "hit@10") for end in ("low", "high")}

    rows = {
        one["run"]: one
        for one in (
            row("a", "A", 0.2, 0.1, windows="last"),
            row("a_seed2021", "A", 0.3, 0.12, windows="last"),
            row("a_worse", "A", 0.24, 0.3),
            row("a_refit", "A", 0.2, 0.4, refit=True),
            row("b", "B", 0.1, 0.2),
        )
    }
    rows["c"] = row("c", "B", 0.1, 0.2) | {"protocol": "global timepoint, last item of each user"}
    sections = board.sections(rows)
    assert [section[1] for section in sections] == ["leave-one-out", "global timepoint, last item of each user"]
    chosen = board.chosen(next(iter(sections.values())), rows)
    assert chosen == [["a", "a_seed2021"], ["a_refit"], ["b"]]
    for default in ("last_FMLPRecMemory_default", "timepoint_FMLPRecMemory"):
        names = {default: 0.1, "last_FMLPRecMemory_default_windows": 0.3, "timepoint_FMLPRecMemory_ease": 0.2}
        own = {name: row(name, "FMLPRecMemory", valid, 0.1) for name, valid in names.items()}
        # the model without the reranker has another row
        own["x_without_reranker"] = row("x_without_reranker", "FMLPRecMemory", 0.05, 0.1, memory_rerank="false")
        assert board.chosen({name: [name] for name in own}, own) == [[default], ["x_without_reranker"]]
    shown = board.row_of([rows[name] for name in chosen[0]])
    assert (shown["NDCG@10"], shown["HR@10"]) == (".1100 ± .0141", ".2200 ± .0283")
    assert (shown["seeds"], shown["min"], shown["note"], shown["run"]) == ("2", "2", "newest", "a")


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
    assert len(results) > 40
    unnamed = [file for file in results if not {file.name, file.stem} & words]
    assert [file.relative_to(RESULTS).as_posix() for file in unnamed] == []


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
        assert runs()[name]["cases"] == table.loc[(dataset, "nearest text"), "cases"]
