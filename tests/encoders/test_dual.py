"""DualRec's two directions, their alignment, the transfer term, the objective and the ablation switches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from recbole_hyper.encoders.base import Dropout, Encoder
from recbole_hyper.encoders.dual import DualEncoder, DualRecEncoder, reversal, trace_reversed
from recbole_hyper.encoders.dual_fmlp import DualFMLPEncoder
from recbole_hyper.encoders.dual_gru import DualGRUEncoder
from recbole_hyper.encoders.dual_transformer import DualTransformerEncoder
from recbole_hyper.encoders.windowed_attention import WindowedAttentionEncoder
from recbole_hyper.options import arguments
from recbole_hyper.registry import resolve
from tests.encoders.duals import N_ITEMS, SMALL, make, pair
from tests.encoders.windowed import random_batch
from tests.raising import refused
from tests.reference import dualrec as reference


class RunningMean(Encoder):
    """The simplest causal backbone: a linear map of the mean of the items so far; records nothing."""

    def __init__(self, item_embedding: nn.Embedding, *, width: int = 16) -> None:
        super().__init__(item_embedding)
        self.linear = nn.Linear(item_embedding.embedding_dim, width)

    def forward(self, items, lengths):
        count = torch.arange(1, items.shape[1] + 1)[:, None]
        return self.linear(self.item_embedding(items).cumsum(1) / count)


class DualRunningMean(DualEncoder, backbone=RunningMean):
    """RunningMean in both directions."""


BACKBONES = [DualRecEncoder, DualTransformerEncoder, DualGRUEncoder, DualFMLPEncoder, DualRunningMean]


def mean_squared(states, targets, rows):
    """A loss that depends on states, targets and rows."""
    assert rows.shape == targets.shape == states.shape[:1]
    return (states[:, 0] - targets).pow(2).mean()


class TestDirections:
    @pytest.mark.parametrize("directions", ["both", "shared"])
    @pytest.mark.parametrize(
        ("cls", "options"), [*((cls, {}) for cls in BACKBONES), (DualFMLPEncoder, {"filter": "circular"})]
    )
    def test_a_state_sees_its_side_of_its_target_only(self, cls, options, directions):
        encoder = make(cls, dual_directions=directions, dual_transfer="none", **options)
        items, lengths = random_batch([8])
        before = encoder.both(*pair(items, lengths))
        for changed in range(8):
            other = items.clone()
            other[0, changed] = items[0, changed] % (N_ITEMS - 1) + 1
            after = encoder.both(*pair(other, lengths))
            for place in range(7):
                moved = (after.past - before.past)[0, place].abs().max() > 1e-9
                assert bool(moved) == (changed <= place)  # place i has seen 0..i and predicts i + 1
                moved = (after.future - before.future)[0, place].abs().max() > 1e-9
                assert bool(moved) == (changed >= place + 1)  # place i has seen i+1.. and predicts i

    def test_reversal_is_its_own_inverse_and_keeps_padding(self):
        index = reversal(torch.tensor([4, 2, 1]), 5)
        assert index.tolist() == [[3, 2, 1, 0, 4], [1, 0, 2, 3, 4], [0, 1, 2, 3, 4]]
        items = torch.arange(15).view(3, 5)
        assert torch.equal(items.gather(1, index).gather(1, index), items)

    def test_the_future_direction_is_the_past_one_over_the_reversed_sequence(self):
        torch.manual_seed(0)
        embedding = nn.Embedding(N_ITEMS, 16, padding_idx=0, dtype=torch.float64)
        past = WindowedAttentionEncoder(embedding, **SMALL).double().eval()
        future = WindowedAttentionEncoder(embedding, **SMALL, direction="future").double().eval()
        future.load_state_dict(past.state_dict())
        items, lengths = random_batch([9, 5, 2, 1])
        native, native_trace = future.trace(items, lengths, return_maps=True)
        turned, turned_trace = trace_reversed(past, items, lengths, return_maps=True)
        for row, length in enumerate(lengths.tolist()):
            torch.testing.assert_close(native[row, :length], turned[row, :length])
            for one, other in zip(native_trace.heads, turned_trace.heads, strict=True):
                torch.testing.assert_close(one[row, :length], other[row, :length])
            for one, other in zip(native_trace.maps, turned_trace.maps, strict=True):
                torch.testing.assert_close(one[row, :, :length, :length], other[row, :, :length, :length])

    def test_states_equal_the_loops(self):
        encoder = make()
        items, lengths = random_batch([8, 3, 2])
        states = encoder.both(*pair(items, lengths))
        for row, n in enumerate(lengths.tolist()):
            past, _, _ = reference.encoder(encoder.past, items[row, : n - 1])
            future, _, _ = reference.encoder(encoder.future, items[row, 1:n])
            torch.testing.assert_close(states.past[row, : n - 1], past, rtol=1e-6, atol=1e-7)
            torch.testing.assert_close(states.future[row, : n - 1], future, rtol=1e-6, atol=1e-7)

    @pytest.mark.parametrize("cls", BACKBONES)
    @given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(2, 9), min_size=1, max_size=5))
    @settings(max_examples=8, deadline=None)
    def test_mixed_lengths_equal_single_users(self, cls, seed, lengths):
        encoder = make(cls, seed=seed)
        items, lengths = random_batch(lengths, seed=seed, columns=9)
        together = encoder.both(*pair(items, lengths))
        recommended = encoder(items, lengths)
        terms = []
        for row, n in enumerate(lengths.tolist()):
            alone = encoder.both(*pair(items[row : row + 1, :n], lengths[row : row + 1]))
            torch.testing.assert_close(together.past[row, : n - 1], alone.past[0])
            torch.testing.assert_close(together.future[row, : n - 1], alone.future[0])
            terms.append(alone.transfer)
            alone = encoder(items[row : row + 1, :n], lengths[row : row + 1])
            torch.testing.assert_close(recommended[row, :n], alone[0])
        torch.testing.assert_close(together.transfer, torch.stack(terms).mean())

    def test_recommendation_uses_the_past_encoder_alone(self):
        encoder = make()
        items, lengths = random_batch([8, 3])
        before = encoder(items, lengths)
        with torch.no_grad():
            for parameter in encoder.future.layers.parameters():
                parameter.fill_(float("nan"))
        assert torch.equal(encoder(items, lengths), before)

    @pytest.mark.parametrize("cls", BACKBONES)
    def test_future_alone_recommends_from_all_items_so_far(self, cls):
        encoder = make(cls, dual_directions="future")
        assert encoder.past is None
        items, lengths = random_batch([6])
        before = encoder(items, lengths)[0]
        for changed in range(6):
            other = items.clone()
            other[0, changed] = items[0, changed] % (N_ITEMS - 1) + 1
            moved = (encoder(other, lengths)[0] - before).abs().amax(-1) > 1e-9
            assert moved.tolist() == [place >= changed for place in range(6)]


class TestObjective:
    @pytest.mark.parametrize("form", ["heads", "attention"])
    def test_weighs_the_three_terms(self, form):
        encoder = make(dual_alpha=0.3, dual_beta=0.7, dual_transfer=form)
        items, lengths = random_batch([7, 4, 2])
        total, terms = encoder.training_loss(*pair(items, lengths), mean_squared)
        states = encoder.both(*pair(items, lengths))
        past, future, predicted, seen = [], [], [], []
        for row, n in enumerate([7, 4, 2]):
            for place in range(n - 1):
                past.append(states.past[row, place, 0])
                predicted.append(items[row, place + 1])
                future.append(states.future[row, place, 0])
                seen.append(items[row, place])
        expected_past = sum((s - t) ** 2 for s, t in zip(past, predicted, strict=True)) / len(past)
        expected_future = sum((s - t) ** 2 for s, t in zip(future, seen, strict=True)) / len(future)
        assert list(terms) == ["past_loss", "future_loss", "transfer_loss"]
        assert terms["past_loss"] == pytest.approx(expected_past.item())
        assert terms["future_loss"] == pytest.approx(expected_future.item())
        assert terms["transfer_loss"] == pytest.approx(states.transfer.item())
        expected = 0.3 * expected_past + 0.7 * expected_future + 0.7 * states.transfer
        torch.testing.assert_close(total, expected)

    def test_every_parameter_learns_from_it(self):
        encoder = make()
        items, lengths = random_batch([7, 4])
        encoder.training_loss(*pair(items, lengths), mean_squared)[0].backward()
        parameters = [*encoder.parameters(), encoder.item_embedding.weight]
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in parameters)

    @pytest.mark.parametrize(
        ("switch", "terms"),
        [
            ({"dual_directions": "past"}, ["past_loss"]),
            ({"dual_directions": "future"}, ["future_loss"]),
            ({"dual_transfer": "none"}, ["past_loss", "future_loss"]),
            ({"dual_beta": 0.0}, ["past_loss", "future_loss"]),
            ({"dual_directions": "shared"}, ["past_loss", "future_loss", "transfer_loss"]),
        ],
    )
    def test_switched_off_terms_are_not_there(self, switch, terms):
        encoder = make(**switch)
        items, lengths = random_batch([7, 4])
        total, found = encoder.training_loss(*pair(items, lengths), mean_squared)
        assert list(found) == terms
        if len(terms) == 1:
            assert total.item() == pytest.approx(found[terms[0]])

    def test_the_directions_alone_are_the_parts_of_the_pair(self):
        whole, past, future = make(), make(dual_directions="past"), make(dual_directions="future")
        past.load_state_dict(whole.state_dict(), strict=False)
        future.load_state_dict(whole.state_dict(), strict=False)
        items, lengths = random_batch([7, 4])
        _, terms = whole.training_loss(*pair(items, lengths), mean_squared)
        assert past.training_loss(*pair(items, lengths), mean_squared)[1]["past_loss"] == pytest.approx(
            terms["past_loss"]
        )
        assert future.training_loss(*pair(items, lengths), mean_squared)[1]["future_loss"] == pytest.approx(
            terms["future_loss"]
        )

    @pytest.mark.parametrize("cls", BACKBONES)
    def test_sequences_of_two_and_histories_of_one(self, cls):
        encoder = make(cls)
        items, lengths = random_batch([2, 2])
        states = encoder.both(*pair(items, lengths))
        assert states.past.shape == states.future.shape == (2, 1, 16)
        total, _ = encoder.training_loss(*pair(items, lengths), mean_squared)
        assert torch.isfinite(total)
        assert torch.isfinite(encoder(items[:, :1], lengths - 1)).all()


class TestSwitches:
    def keys(self, **switch):
        return set(make(**switch).state_dict())

    def test_shared_has_one_network(self):
        assert self.keys(dual_directions="shared") == self.keys(dual_directions="past")
        assert {k for k in self.keys() if not k.startswith("future.")} == self.keys(dual_directions="past")
        assert {k for k in self.keys() if not k.startswith("past.")} == self.keys(dual_directions="future")

    @pytest.mark.parametrize("switch", [{"dual_transfer": "none"}, {"dual_alpha": 1.0}, {"dual_beta": 0.0}])
    def test_the_objective_changes_no_network(self, switch):
        changed = make(**switch)
        full = make()
        assert changed.state_dict().keys() == full.state_dict().keys()
        items, lengths = random_batch([7, 4])
        assert torch.equal(changed.both(*pair(items, lengths)).past, full.both(*pair(items, lengths)).past)
        assert torch.equal(changed.both(*pair(items, lengths)).future, full.both(*pair(items, lengths)).future)

    @pytest.mark.parametrize(
        "switch", [{"relative_positions": "none"}, {"layer_norm": False}, {"residual": False}, {"windows": "full"}]
    )
    def test_backbone_switches_reach_both_directions(self, switch):
        items, lengths = random_batch([8])
        losses = [made.training_loss(*pair(items, lengths), mean_squared)[1] for made in (make(**switch), make())]
        assert losses[0]["past_loss"] != losses[1]["past_loss"]
        assert losses[0]["future_loss"] != losses[1]["future_loss"]

    def test_future_dropout(self):
        encoder = make(dual_future_dropout=False, hidden_dropout_prob=0.5, attn_dropout_prob=0.4)
        rates = {name: module.p for name, module in encoder.named_modules() if isinstance(module, Dropout)}
        assert {rate for name, rate in rates.items() if name.startswith("past.")} == {0.5, 0.4}
        assert rates["future.dropout"] == 0.5
        assert {rate for name, rate in rates.items() if name.startswith("future.layers")} == {0.0}
        with refused(ValueError, "RunningMean"):
            make(DualRunningMean, dual_future_dropout=False)


class TestConfiguration:
    def test_resolves_by_name_with_the_backbones_options(self):
        cls = resolve("encoders", "dual")
        assert cls is DualRecEncoder
        given = {"dual_alpha": 0.2, "dual_windows": [2, 3, 4, 9], "n_heads": 4, "direction": "past"}
        found = arguments(cls.options(), given)
        assert found.items() >= {"dual_alpha": 0.2, "windows": [2, 3, 4, 9], "n_heads": 4}.items()
        assert "layer_dropout" not in cls.options()

    @pytest.mark.parametrize(
        ("option", "value", "named"),
        [
            ("dual_alpha", 1.1, "dual_alpha=1.1"),
            ("dual_beta", float("nan"), "dual_beta=nan"),
            ("dual_directions", "forward", "both, shared, past or future"),
            ("n_heads", 3, "n_heads=3"),
            ("windows", [1, 2, 3, 10], "1..9"),
        ],
    )
    def test_faults(self, option, value, named):
        with refused(ValueError, named):
            make(**{option: value})

    def test_attention_transfer_needs_attention(self):
        for cls in (DualRunningMean, DualFMLPEncoder, DualTransformerEncoder):
            with refused(ValueError, "needs attention maps"):
                make(cls, dual_transfer="attention")
            make(cls, dual_transfer="attention", dual_beta=0.0)
