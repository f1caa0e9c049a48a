"""Base of the neural models: encoder -> output geometry -> loss, as a RecBole recommender."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from recbole.model.abstract_recommender import GeneralRecommender, SequentialRecommender
from recbole.utils import InputType, ModelType
from torch import Tensor, nn

from recbole_hyper import registry
from recbole_hyper.devices import total_memory
from recbole_hyper.encoders.base import Encoder, Places, initialize
from recbole_hyper.errors import ConfigError
from recbole_hyper.evaluation.scorers import Scorer, encode_cases, state_scorer
from recbole_hyper.geometry.head import OutputHead, check_head
from recbole_hyper.host.dataset import TARGET_LIST, StoreDataset
from recbole_hyper.losses.base import Loss
from recbole_hyper.models.contract import OwnModel
from recbole_hyper.models.item_vectors import FeaturedEmbedding, FeaturedHead
from recbole_hyper.options import AUTO, arguments, checked_before
from recbole_hyper.random_numbers import OwnDraws
from recbole_hyper.types import Prefixes

if TYPE_CHECKING:  # what only a training needs is imported there
    from recbole_hyper.batches.loader import WindowLoader
    from recbole_hyper.data.item_features import ItemFeatures
    from recbole_hyper.data.sequences import SequenceStore
    from recbole_hyper.losses.negatives import NegativeSampler

# kind in the registry of the part that each key names
_KINDS = {"encoder": "encoders", "geometry": "geometry", "loss_type": "losses"}


class OneStepRecommender(OwnModel, GeneralRecommender):
    """Base of the models that fit in one step, as a RecBole recommender."""

    input_type = InputType.POINTWISE
    type = ModelType.TRADITIONAL


class HyperRecommender(OwnModel, SequentialRecommender):
    """A sequential recommender made of an encoder, a geometry and a loss.

    A subclass sets ``parts``, or only those that differ: ``class Mine(HyperRecommender, loss_type="bce")``. Its other
    defaults come from ``properties/model/<Name>.yaml``. ``--encoder``, ``--geometry`` and ``--loss_type`` replace a
    part of any model. Encoder and head share the item embedding; with ``reuse_item_embeddings=False`` the head has its
    own matrix, ``output_embedding``.

    Training batches are windows: ``item_id_list`` (B, L), ``item_length`` (B,), ``target_list`` (B, L) with 0 where
    there is no target, and ``timestamp_list`` (B, L) if the encoder reads times. Every position with a target trains.
    RecBole's rows (prefix, target) work too: without ``target_list`` the last state predicts ``item_id``.

    ``loss_terms`` are the terms of the last training loss by name, 0-d and detached, for train.csv.
    """

    parts: ClassVar[dict[str, str | type]] = {"encoder": "transformer", "geometry": "euclidean", "loss_type": "ce"}
    input_type = InputType.POINTWISE
    n_items: int
    # False if a score needs more than states and item vectors
    scores_by_head: ClassVar[bool] = True

    def __init_subclass__(cls, **parts: str | type) -> None:
        super().__init_subclass__()
        if parts:
            cls.parts = cls.parts | parts

    def __init__(self, config: Any, dataset: Any) -> None:
        super().__init__(config, dataset)
        features: dict[str, Any] = {}
        if config["selected_features"]:
            if dataset.item_features is None:
                raise ValueError("selected_features is set, but the dataset has no item features: read it with run()")
            features = {"features": dataset.item_features, "trained": dataset.trained_items()}
        self.item_embedding = new_embedding(config, self.n_items, **features)
        self.encoder: Encoder = build_part("encoder", config, self.item_embedding)
        if not config["feature_output"]:
            features = {}
        separate = not config["reuse_item_embeddings"]
        self.output_embedding = new_embedding(config, self.n_items, **features) if separate else None
        scored = self.item_embedding if self.output_embedding is None else self.output_embedding
        matrix = scored if features and isinstance(scored, FeaturedEmbedding) else scored.weight
        self.head = _build_head(config, matrix, resolve_curvature(config))
        self.encoder.share_curvature(self.head)
        self.loss: Loss = build_part("loss_type", config)
        self.loss_terms: dict[str, Tensor] = {}
        self.TIME_SEQ = config["TIME_FIELD"] + config["LIST_SUFFIX"]
        # a sampler stores every interaction, so only a loss that draws negatives gets one
        self._sampler = self._negative_sampler(dataset) if self.loss.uses_negatives else None

    @classmethod
    def check_config(cls, config: Any) -> None:
        """Raise ConfigError for options that do not go together, sizes that do not fit, and plugins that fail."""
        from recbole_hyper.models.data_defaults import stand_ins

        config = {**config.final_config_dict, **stand_ins(auto_keys(config))}
        geometry, learned = registry.resolve("geometry", config["geometry"]), config["curvature"] == "learn"
        # the estimate of auto is not known yet
        curvature = 1.0 if config[curvature_key(config)] == "auto" else resolve_curvature(config)
        try:
            for key, kind in _KINDS.items():
                part = registry.resolve(kind, config[key])
                part.check(config["hidden_size"], **arguments(part.options(), config))
            check_head(bool(config["item_bias"]), config["item_bias_init"], curvature, learned and geometry.curved)
            cls.require_room(config, 4)
            cls._try_plugins(config, curvature)
        except (ValueError, TypeError) as error:
            raise ConfigError(str(error)) from error

    @staticmethod
    def _try_plugins(config: Any, curvature: float) -> None:
        """Build the parts that come from plugins, with 4 ids, as only their constructors know what is wrong."""
        from recbole_hyper.models.part_checks import blamed, is_ours

        kinds = {key: registry.resolve(kind, config[key]) for key, kind in _KINDS.items()}
        strange = {key: part for key, part in kinds.items() if not is_ours(part)}
        if not strange:
            return
        with OwnDraws(seed=0):
            embedding = new_embedding(config, 4)
            for key, part in strange.items():
                with blamed(part, "__init__"):
                    if key == "geometry":
                        _build_head(config, embedding.weight, curvature)
                    else:
                        build_part(key, config, *([embedding] if key == "encoder" else []))

    @classmethod
    def require_room(cls, config: Any, n_items: int) -> None:
        """Raise ConfigError if training with ``n_items`` ids surely needs more memory for weights than the device has.

        Nothing is built: the encoder bounds the number of its weights from below.
        """
        encoder, width = registry.resolve("encoders", config["encoder"]), config["hidden_size"]
        options = arguments(encoder.options(), config)
        # weights, gradients and the two moments of Adam, in float32
        needed = 16 * (n_items * width + encoder.least_weights(width, **options))
        if needed > (available := total_memory(config["device"])):
            keys = ("MAX_ITEM_LIST_LENGTH", "hidden_size", "inner_size", "n_layers")
            sizes = ", ".join(f"{key}={config[key]}" for key in keys if config[key] is not None)
            raise ConfigError(
                f"{sizes}: the weights of the model need about {needed / 2**30:.1f} GiB in training, and the device "
                f"has {available / 2**30:.1f} GiB; choose smaller sizes"
            )

    def add_items(self, features: ItemFeatures, config: Any) -> None:
        """Add the new items at the end of ``features``; ConfigError if the model does not score items by features."""
        if not isinstance(self.head, FeaturedHead) or not self.scores_by_head:
            raise ConfigError(
                f"{config['model']} does not score items by features, so it cannot score new items; train a model with "
                "selected_features and feature_output=True"
            )
        for table in {self.item_embedding, self.head.table}:
            if isinstance(table, FeaturedEmbedding):
                table.add_items(features)
        self.head.add_items(float(config["item_bias_init"] or 0.0))
        self.n_items = features.n_items

    def training_loader(
        self, training: StoreDataset, store: SequenceStore, lengths: npt.NDArray, config: Any
    ) -> WindowLoader:
        from recbole_hyper.batches.loader import BatchSettings, LoaderSettings, WindowLoader

        settings = LoaderSettings.of(config), BatchSettings.of(config)
        return WindowLoader(training, store, lengths, *settings, fills=self.loss.weighs_rows)

    def case_scorer(self, config: Any, part: str = "test") -> Scorer:
        return state_scorer(self, int(config["MAX_ITEM_LIST_LENGTH"]), config["device"])

    def item_vectors(self) -> Tensor:
        return self.head.weight.detach()

    @torch.no_grad()
    def last_states(self, cases: Prefixes, config: Any) -> Tensor:
        """Return the states (n, d) after whole histories, of which the encoder reads the newest items."""
        return encode_cases(self, cases, int(config["MAX_ITEM_LIST_LENGTH"]), config["device"])

    def score_table(self) -> nn.Module | None:
        """Return a module from (logits, items, lengths) to scores, for graphs; None if logits are the scores."""
        return None

    def similarity(self, items: Tensor) -> tuple[str, Tensor]:
        head, vectors = self.head, self.item_vectors()
        return head.geometry.measure, head.geometry.similarity(vectors[items], vectors, theta=head.theta_value)

    def _negative_sampler(self, dataset: Any) -> NegativeSampler:
        from recbole_hyper.losses.negatives import NegativeSampler

        # row u of the CSR arrays is RecBole's user u; rows of unknown users are empty
        matrix = dataset.inter_matrix("csr")
        matrix.sort_indices()
        offsets = torch.from_numpy(matrix.indptr).long()
        # negatives are rows of the step's head
        items = self.head.rows_in_step(torch.from_numpy(matrix.indices).long())
        return NegativeSampler(self.head.n_step_items, offsets.to(self.device), items.to(self.device))

    def forward(self, items: Tensor, lengths: Tensor, *times: Tensor) -> Tensor:
        """Return the states (B, d) at the newest of ``items`` (B, L); ``times`` (B, L) if the encoder reads them."""
        return self.encoder.last(items, lengths, *times)

    def _histories(self, interaction: Any) -> tuple[Tensor, ...]:
        """Return the items and lengths of a batch, and the times if the encoder reads them."""
        items, lengths = interaction[self.ITEM_SEQ], interaction[self.ITEM_SEQ_LEN]
        if not self.encoder.reads_times:
            return items, lengths
        if self.TIME_SEQ not in interaction:
            raise ValueError(f"{type(self.encoder).__name__} reads times, but the batch has no {self.TIME_SEQ!r}")
        return items, lengths, interaction[self.TIME_SEQ]

    def calculate_loss(self, interaction: Any) -> Tensor:
        """Return the training loss of a batch, 0-d, and set ``loss_terms``.

        ValueError for rows (prefix, target) if the encoder reads the future.
        """
        from recbole_hyper.batches.device_windows import PLACES, ROWS, WEIGHTS

        users = interaction[self.USER_ID]
        head = self.head.step_head()
        if TARGET_LIST not in interaction:
            if self.encoder.reads_future:
                raise ValueError(
                    f"{type(self.encoder).__name__} reads the future, but the batch has no {TARGET_LIST!r}; use windows"
                )
            states = self.forward(*self._histories(interaction))
            rows = torch.arange(len(users), device=users.device)
            return self._loss(states, interaction[self.POS_ITEM_ID], users, rows, head)
        statistics: list[dict[str, Tensor]] = []

        def loss_of(states: Tensor, targets: Tensor, rows: Tensor) -> Tensor:
            loss = self._loss(states, targets, users, rows, head, places, weights)
            statistics.append(self.loss_terms)
            return loss

        items, lengths, *times = self._histories(interaction)
        places = weights = None
        if PLACES in interaction:
            weights = interaction[WEIGHTS] if WEIGHTS in interaction else None  # noqa: SIM401
            places = Places(interaction[PLACES], interaction[ROWS], items.shape[1])
            loss_of.places = places  # type: ignore[attr-defined]
        total, terms = self.encoder.training_loss(items, interaction[TARGET_LIST], lengths, loss_of, *times)
        self.loss_terms = {**terms, **statistics[0]}
        # a dual encoder has a second loss
        self.loss_terms |= {f"future_{name}": value for one in statistics[1:] for name, value in one.items()}
        return total

    def _loss(
        self,
        states: Tensor,
        targets: Tensor,
        users: Tensor,
        rows: Tensor,
        head: OutputHead,
        places: Places | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of states (n, d) with targets (n,) in batch rows (n,), and set ``loss_terms``.

        ``places`` are those of the batch's targets, whose ``weights`` (n,) are 0 for fillers.
        """
        targets = self.head.rows_in_step(targets)
        if places is not None and len(places.rows) != len(states):
            places = weights = None  # another encoder may choose other positions
        negatives = None
        if self._sampler is not None:
            grid = None if places is None else (places.flat, places.width)
            negatives = self._sampler.bind(users, rows, targets, grid=grid)
        options = {} if weights is None else {"weights": weights}
        loss = self.loss(states, targets, head, negatives, **options)
        self.loss_terms = dict(self.loss.statistics)
        return loss

    def predict(self, interaction: Any) -> Tensor:
        """Return the score (B,) of each row's item."""
        states = self.forward(*self._histories(interaction))
        return self.head.pair_logits(states, interaction[self.ITEM_ID][:, None])[:, 0]

    def full_sort_predict(self, interaction: Any) -> Tensor:
        """Return the scores (B, n_items) of all items; column 0 is padding."""
        return self.head.logits(self.forward(*self._histories(interaction)))


def build_part(key: str, config: Any, *positional: Any) -> Any:
    """Return the part that ``config`` names by ``key`` (encoder, geometry or loss_type), with its options."""
    part = registry.resolve(_KINDS[key], config[key])
    with checked_before():
        return part(*positional, **arguments(part.options(), config))


def _build_head(config: Any, weight: Tensor | FeaturedEmbedding, curvature: float) -> OutputHead:
    """Return the output head over the item matrix ``weight``, or over item vectors with features."""
    head: Any = FeaturedHead if isinstance(weight, FeaturedEmbedding) else OutputHead
    return head(
        build_part("geometry", config),
        weight,
        offset=bool(config["item_bias"]),
        offset_init=config["item_bias_init"],
        theta=curvature,
        learn_curvature=config["curvature"] == "learn",
    )


def new_embedding(
    config: Any, n_items: int, *, features: ItemFeatures | None = None, trained: npt.NDArray[np.bool_] | None = None
) -> nn.Embedding:
    """Return new item vectors (n_items, hidden_size), drawn by ``initializer``; row 0 is padding and zero.

    With ``features`` the vectors include these; ``trained`` (n_items,) is then True for items of the training part.
    """
    width = config["hidden_size"]
    if features is None or trained is None:
        embedding = nn.Embedding(n_items, width, padding_idx=0)
    else:
        options = {"pooling": config["pooling_mode"], "fusion": config["feature_fusion"]}
        embedding = FeaturedEmbedding(width, features, trained, id_dropout=config["feature_id_dropout"], **options)
    rule, std = (
        Encoder.model_defaults[key] if config[key] is None else config[key]
        for key in ("initializer", "initializer_range")
    )
    initialize(embedding, rule=rule, std=std)
    with torch.no_grad():
        embedding.weight[0].zero_()
    if isinstance(embedding, FeaturedEmbedding):
        embedding.start_features()
    return embedding


def auto_keys(config: Any) -> list[str]:
    """Return the keys of ``config`` that are ``auto`` and get their value from the training data."""
    from recbole_hyper.models.data_defaults import RULES

    # no .get: RecBole's Config has none
    return [key for key in RULES if key in config and config[key] == AUTO]


def curvature_key(config: Any) -> str:
    """Return the key of the curvature that a model starts with."""
    return "curvature_init" if config["curvature"] == "learn" else "curvature"


def resolve_curvature(config: Any) -> float:
    """Return the curvature that a model starts with, as given or estimated."""
    key = curvature_key(config)
    if config[key] == "auto":
        raise ValueError(f"{key}=auto must be estimated before the model is built, as run() does")
    return 1.0 if config[key] is None else float(config[key])
