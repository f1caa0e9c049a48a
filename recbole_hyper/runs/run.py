"""A run: from a configuration to a result."""

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch.distributed import is_torchelastic_launched

from recbole_hyper import devices
from recbole_hyper.batches.loader import BatchSettings, case_interaction
from recbole_hyper.config import Config
from recbole_hyper.config.binding import Exact, parse_keys
from recbole_hyper.config.parts import part_name
from recbole_hyper.data.item_features import diversity_tokens
from recbole_hyper.data.reading import given_store
from recbole_hyper.data.source import Source
from recbole_hyper.data.tables.download import with_data
from recbole_hyper.evaluation import results, statistics
from recbole_hyper.evaluation.results import protocol_report
from recbole_hyper.evaluation.scorers import fold_in_scorer, full_sort_scorer, require_known_users
from recbole_hyper.files import write_json, write_yaml
from recbole_hyper.host import leaks
from recbole_hyper.host.metrics import DIVERSITY
from recbole_hyper.host.models import has_full_ranking, one_line
from recbole_hyper.kernels.clock import COMPILING, Stopwatch
from recbole_hyper.losses.ce import CrossEntropy
from recbole_hyper.matmul import gpu_precision
from recbole_hyper.models.base import HyperRecommender
from recbole_hyper.models.contract import OwnModel, n_learned
from recbole_hyper.models.part_checks import check_parts
from recbole_hyper.processes import package_version
from recbole_hyper.protocols.base import sampled
from recbole_hyper.random_numbers import seed_process, seeded
from recbole_hyper.registry import parts_of
from recbole_hyper.runs.build import build, read_data, reader_of_store
from recbole_hyper.runs.card import write_card
from recbole_hyper.runs.claim import claimed_folder, helping_folder, logging_to, require_several
from recbole_hyper.runs.dataset import SequenceDataset, describe
from recbole_hyper.runs.folder import ABOUT_RUN, CONFIG, FORMAT, RESULT, identity, read_config
from recbole_hyper.runs.plugin_files import keep_digests
from recbole_hyper.runs.ready import log_split, require_times, resolve_auto
from recbole_hyper.runs.reopened import check_reopened
from recbole_hyper.runs.saved_data import read_saved_data, require_saved_data, save_data
from recbole_hyper.runs.trained_on import among, not_new
from recbole_hyper.runs.warm_start import continuation, learned_there, require_same_model, start_from
from recbole_hyper.threads import PROCESS_LOCK, use_threads
from recbole_hyper.training.checkpoint import REFIT
from recbole_hyper.training.cost import plan
from recbole_hyper.training.loop import Loop
from recbole_hyper.training.memory import PeakMemory, try_step
from recbole_hyper.training.processes import joined, shared_work, world
from recbole_hyper.training.recbole_training import NOT_RESUMABLE, recbole_training
from recbole_hyper.training.settings import RankSettings, TrainSettings
from recbole_hyper.training.validation import Evaluation, metrics
from recbole_hyper.types import Ranks, Split

logger = logging.getLogger("recbole_hyper")


def run(
    model: str | type | None = None,
    dataset: str | None = None,
    *,
    interactions: Any = None,
    config_files: Sequence[str | Path] | None = None,
    config_dict: Mapping[str, Any] | None = None,
    test: bool = True,
    on_validation: Callable[[int, float], None] | None = None,
) -> dict[str, Any]:
    """Train, select on validation, test once, and write everything to ``output_dir``.

    Calls from several threads run one after another, so they do not change each other's results.

    Args:
        model: name or class of a model of this package or of RecBole.
        dataset: name of a dataset folder below ``data_path``, or a name for ``interactions``.
        interactions: data instead of a dataset folder: a pandas or polars DataFrame or an Arrow table with a user, an
            item and a time in each row. The run's folder keeps it for a resume.
        config_files: YAML files; later ones override earlier ones.
        config_dict: keys that override the files, such as ``output_dir`` and ``resume``.
        test: False only trains and validates, without test cases and without a refit (trials of a sweep).
        on_validation: called with (epoch, validation score) after every validation.

    Returns the content of result.json: RecBole's ``best_valid_score``, ``best_valid_result`` and ``test_result``, and
    model, dataset, protocol, seed, valid, test, seconds, peak_memory_bytes, counts, fingerprint and versions.

    Raises:
        ConfigError: a configuration that cannot run, before any data is read; a folder of another run, or one that
            another process uses.
        CheckpointError: a resumed run whose checkpoints are missing, damaged or from other data.
        DataError, ProtocolError: unusable data or an unusable split.
        DivergedError, NonFiniteScoreError: training diverged.
    """
    settings = parse_keys(config_dict or {}).copy()
    settings |= {} if interactions is None else {"interactions": "given"}
    settings |= {"gpu_id": os.environ["LOCAL_RANK"]} if is_torchelastic_launched() else {}
    named = bool(model or settings.get("model") or config_files or settings.get("init_from"))
    stored, files = dict[str, Any](), list(config_files or [])
    if settings.get("resume") and (folder := settings.get("output_dir")):
        # without a model, the run in the folder is meant, and an error says that there is none
        stored = read_config(Path(folder)) if (Path(folder) / CONFIG).is_file() or not named else {}
    if settings.get("init_from") and not stored:
        start = Path(str(settings["init_from"])).absolute()
        stored, changes = continuation(start, files)
        settings = Exact({**changes, **settings, "init_from": str(start)})
    config = with_data(lambda: Config(model, dataset, files, settings, stored=stored))
    if config["init_from"]:
        require_same_model(config)
    read: Callable[[Config], tuple[SequenceDataset, Split]] = read_data
    if interactions is not None:
        read = reader_of_store(given_store(Source.of(config), interactions))
    elif config["interactions"] == "given" and config["resume"] and config["output_dir"]:
        saved = read_saved_data(Path(config["output_dir"]))
        read = read_data if saved is None else reader_of_store(saved.store)
    with (
        PROCESS_LOCK,
        joined(config["device"]) as rank,
        claimed_folder(config) if rank == 0 else helping_folder(config) as output_dir,
    ):
        require_several(config)
        return run_claimed(config, output_dir, test=test, read=read, on_validation=on_validation)


def run_claimed(
    config: Config,
    output_dir: Path,
    *,
    test: bool = True,
    read: Callable[[Config], tuple[SequenceDataset, Split]] = read_data,
    on_validation: Callable[[int, float], None] | None = None,
) -> dict[str, Any]:
    """Run in a folder that the caller has locked; see :func:`run`."""
    start, watch, compiled = perf_counter(), Stopwatch(), COMPILING.seconds
    with logging_to(output_dir, config["state"]):
        write_json(output_dir / ABOUT_RUN, {"format": FORMAT, "version": package_version()})
        use_threads(config["n_threads"])
        seed_process(config["seed"], config["reproducibility"])
        logger.info("device: %s", devices.in_words(devices.describe(config["device"])))
        data, split = read(config)
        if not test:
            split = split.without_test()
        if config["resume"]:
            require_saved_data(output_dir, data)
        load_seconds = watch.seconds()
        learned = learned_there(Path(config["init_from"])) if config["init_from"] else []
        if config.model_class.origin != "own":
            require_known_users(config.model_class, split)
        require_times(config)
        resolved = resolve_auto(config, data, split, output_dir)
        if config["valid_cases"]:
            split = sampled(split, int(config["valid_cases"]), int(config["candidate_seed"]), ["valid"])
        log_split(split)
        if config["protocol_report"]:
            print(protocol_report(split))
        seen = {part: not_new(getattr(split, part), learned, timed=bool(split.points)) for part in ("valid", "test")}
        if text := results.not_new_text({"cases_not_new": seen, **describe(split)}):
            logger.warning("%s", text.strip(" ()"))
        if config["save_data"] and world()[0] == 0:
            earlier = among(learned, data.store, data.store.row_of, data.store.positions) if learned else None
            save_data(output_dir, config, data, split, earlier)
        keep_digests(output_dir, config["plugins"])
        write_yaml(output_dir / CONFIG, config.plain())
        with nullcontext() if config["device"].type == "cpu" else gpu_precision(config["matmul_precision"]):
            outcome = _train_and_test(config, data, split, output_dir, on_validation)
        result = {
            **provenance(config, split),
            "ties": "a target ranks behind every candidate with an equal score",
            "workers": world()[1],
            "threads": torch.get_num_threads(),
            "device": devices.describe(config["device"]),
            **resolved,
            **outcome,
            **({"cases_not_new": seen} if learned else {}),
            "files": identity(output_dir),
        }
        result["seconds"]["load"] = load_seconds
        if COMPILING.seconds > compiled:
            result["seconds"]["compile"] = COMPILING.seconds - compiled
        result["seconds"]["total"] = perf_counter() - start
        write_json(output_dir / RESULT, result)
        write_card(output_dir, result)
        _print_summary(result, output_dir)
    return result


def _train_and_test(
    config: Config, data: SequenceDataset, split: Split, output_dir: Path, on_validation: Any = None
) -> dict[str, Any]:
    """Train, refit if the split needs it, and rank; return metrics and costs."""
    trainer, loader, training, about = _prepared(config, data, split, split.train_lengths, output_dir)
    trainer.on_validation, model = on_validation, trainer.model
    valid, test = evaluations(split, training)
    progress = bool(config["show_progress"]) and sys.stderr.isatty()
    outcome: dict[str, Any] = {"valid": {}, "test": {}, **checked_for_leaks(model, config, split)}
    try:
        _select(trainer, loader, valid, progress)
        outcome.update(checked_for_leaks(model, config, split))
        if len(valid):
            ranks = trainer.best_ranks or trainer.rank_part(valid, progress)
            outcome.update(report_part(config, trainer.ranking, valid, ranks, output_dir))
        seconds, tested = dict(trainer.seconds), trainer
        outcome.update(epochs=len(trainer.history), best_epoch=trainer.best_epoch, refit_epochs=0, seconds=seconds)
        if split.refit_lengths is not None:
            tested = _refit(data, split, trainer, progress)
            outcome["refit_epochs"], seconds["refit"] = len(tested.history), tested.seconds["train"]
        watch = Stopwatch()
        with PeakMemory(config["device"]) as memory:
            if len(test):
                ranks = tested.rank_part(test, progress)
                outcome.update(report_part(config, tested.ranking, test, ranks, output_dir), test_ties=ranks.tied)
        seconds["test"] = watch.seconds()
        outcome.update(check_reopened(tested.model, config, data, split, refitted=tested is not trainer))
        outcome["peak_memory_bytes_per_phase"] = {**tested.peak_memory, "test": memory.bytes}
    finally:
        trainer.close_loggers(outcome["test"])
    if trainer.one_step:
        outcome["fitted_in_one_step"] = True
    if isinstance(model, HyperRecommender):
        outcome |= model.head.learned or {"curvature": model.head.theta_value}
        if not type(model.encoder).causal:
            outcome["causal"] = False
    return {
        **outcome,
        "best_valid_score": outcome["valid"].get(config["valid_metric"].lower()),
        "valid_score_bigger": config["valid_metric_bigger"],
        "best_valid_result": outcome["valid"],
        "test_result": outcome["test"],
        "peak_memory_bytes": max(outcome["peak_memory_bytes_per_phase"].values()),
        "parameters": n_learned(model),
        **about,
    }


def checked_for_leaks(model: Any, config: Config, split: Split) -> dict[str, str]:
    """Return the entry of result.json on leaks; ConfigError if a RecBole model reads the target or cannot rank."""
    if isinstance(model, OwnModel) or fold_in_scorer(model) is not None:
        return {}
    cases = split.valid if len(split.valid) else split.test
    with one_line(config, "while it ranked"):
        if not has_full_ranking(type(model)):
            with seeded(0):
                full_sort_scorer(model.eval(), config)(cases[:1])
            return {}
        width = int(config["MAX_ITEM_LIST_LENGTH"])
        leak = leaks.check(
            model, config, cases, partial(case_interaction, width=width, settings=BatchSettings.of(config))
        )
    return {"leak_check": leak} if leak else {}


def _prepared(
    config: Config, data: SequenceDataset, split: Split, lengths: Any, folder: Path
) -> tuple[Any, Any, SequenceDataset, dict[str, Any]]:
    """Return the trainer on the first ``lengths`` of each row, its batches, its data, and entries of result.json."""
    model, batches, training = build(config, data, split, lengths)
    about: dict[str, Any] = {"trial_step_bytes": None}
    if isinstance(model, HyperRecommender):
        check_parts(model, int(config["MAX_ITEM_LIST_LENGTH"]))
        if folder.name != REFIT:
            trial = try_step(TrainSettings.of(config), model, batches)
            about["trial_step_bytes"] = trial.bytes
            exact = isinstance(model.loss, CrossEntropy) and model.loss.softmax_items is None
            text = plan(trial, batches, int(config["epochs"]), model.n_items, exact=exact)
            logger.info("a trial step took %.0f MiB; %s", trial.bytes / 2**20, text)
    if config["init_from"]:
        about["started_from"] = {"run": config["init_from"], **start_from(Path(config["init_from"]), model, training)}
        said = {**about["started_from"], **{key: config[key] for key in ("learning_rate", "epochs")}}
        logger.info("warm start from %s", ", ".join(f"{key} {value}" for key, value in said.items()))
    if isinstance(model, OwnModel):
        batches, loss_of = shared_work(model, batches, int(config["seed"]))
        trainer: Any = Loop(config, model, folder, loss_of)
    else:
        trainer = recbole_training(config, model, folder)
    trainer.data_fingerprint = split.store.fingerprint()
    return trainer, batches, training, about


def _select(trainer: Any, loader: Any, valid: Evaluation, progress: bool) -> None:
    """Train, load the weights of the epoch that is best on ``valid``, and let the model fit the rest to it."""
    if trainer.config["resume"]:
        logger.info("resuming at epoch %d", trainer.resume(loader))
    if not len(valid) and not trainer.one_step:
        logger.warning("no validation case: training all %d epochs without selection", trainer.settings.epochs)
    try:
        trainer.fit(loader, valid, progress)
    except KeyboardInterrupt:
        logger.error("interrupted; continue with --resume=True --output_dir=%s", trainer.output_dir)
        raise
    if trainer.best_valid_score == 0 and trainer.valid_metric_bigger:
        logger.warning("no validation case is hit: are all scores equal? A target ranks behind equal scores")
    elif trainer.is_best_last:
        how = "" if trainer.settings.model in NOT_RESUMABLE else f" --resume=True --output_dir={trainer.output_dir}"
        logger.info("the best epoch is the last: train longer, with%s --epochs=%d", how, 2 * trainer.epochs)
    trainer.load_best()
    if len(valid):
        trainer.choose(valid, progress)


def provenance(config: Config, split: Split) -> dict[str, Any]:
    """Return where a result comes from: model, data, protocol, seed, counts, versions, configuration."""
    parts = {key: part_name(key, part) for key, part in parts_of(config.model_class).items()}
    return {
        **{key: config[key] for key in ("model", "dataset")},
        "other_parts": {key: name for key in parts if (name := part_name(key, config[key])) != parts[key]},
        "protocol": split.counts["protocol"],
        **{key: config[key] for key in ("eval_args", "exclude_seen", "seed")},
        **describe(split),
        "protocol_counts": split.counts,
        "versions": results.versions(),
        "commit": results.commit(),
        "config": config.plain(),
    }


def evaluations(split: Split, training: SequenceDataset) -> tuple[Evaluation, Evaluation]:
    """Return validation and test of a split, with the training counts for the metrics."""
    config, tokens = training.config, None
    if DIVERSITY in [name.lower() for name in config["metrics"]]:
        tokens = diversity_tokens(Source.of(config), config["diversity_features"], split.store.item_tokens)
    known = training.item_counter, training.user_counter, tokens
    return Evaluation("valid", split.valid, split, *known), Evaluation("test", split.test, split, *known)


def report_part(
    config: Config, ranking: RankSettings, evaluation: Evaluation, ranks: Ranks, output_dir: Path
) -> dict[str, Any]:
    """Return the metrics of a ranked part as {part: metrics}, with intervals on request; save its cases on request."""
    part, content = evaluation.name, {evaluation.name: metrics(ranking, evaluation, ranks)}
    if config["save_cases"]:
        frame = results.cases_frame(evaluation.cases, ranks, evaluation.item_counts, evaluation.user_counts)
        results.write_cases(output_dir / f"cases_{part}.parquet", frame)
    if not config["confidence"]:
        return content
    names = [f"{metric.lower()}@{k}" for metric in ranking.metrics for k in ranking.topk]
    level, seed, cases = float(config["confidence"]), int(config["seed"]), evaluation.cases
    intervals = statistics.intervals(ranks.ranks, cases.store.users[cases.rows], names, confidence=level, seed=seed)
    method = f"{statistics.METHOD}, {statistics.RESAMPLES} resamples, level {level}"
    return {**content, f"{part}_intervals": intervals, "interval_method": method}


def _refit(data: SequenceDataset, split: Split, selecting: Any, progress: bool) -> Any:
    """Train a new model on train + validation, for the best number of epochs and at the rates of ``selecting``."""
    config, folder = selecting.config, selecting.output_dir / REFIT
    metric = f"valid_{config['valid_metric'].lower()}"
    logger.info("refit on train + validation for %d epochs", selecting.best_epoch + 1)
    seed_process(config["seed"], config["reproducibility"])
    folder.mkdir(exist_ok=True)
    trainer, loader, *_ = _prepared(config, data, split, split.refit_lengths, folder)
    if isinstance(trainer.model, OwnModel):
        trainer.model.choose_as(selecting.model)
    trainer.epochs = selecting.best_epoch + 1
    trainer.wandblogger.log_as(REFIT)
    trainer.plateau_scores = {row["epoch"]: row[metric] for row in selecting.history if metric in row}
    if config["resume"]:
        trainer.resume(loader)
    trainer.fit(loader, None, progress)
    trainer.close_loggers({})
    trainer.load_best()
    return trainer


def _print_summary(result: Mapping[str, Any], output_dir: Path) -> None:
    compiled = result["seconds"].get("compile")
    once = f"{compiled:.1f} s compiling kernels once, " if compiled else ""
    print(
        f"\n{results.headline(result)}, seed {result['seed']}\n"
        f"{result['parameters']:,} parameters, {results.epochs_text(result)}, "
        f"{result['seconds']['train']:.1f} s training, {once}peak {result['peak_memory_bytes'] / 2**20:,.0f} MiB\n"
        f"{results.metrics_table(result)}\n{output_dir / RESULT}"
    )
