"""The transfer term of DualRec, against plain loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.encoders.base import Trace
from recbole_hyper.encoders.dual import reversal
from recbole_hyper.encoders.dual_transfer import distance_distribution, symmetric_kl, transfer
from tests.encoders.duals import make, pair
from tests.reference import dualrec as reference


def random_trace(seed: int, lengths, layers: int = 2, n_heads: int = 3, direction: str = "past", window: int = 4):
    generator = torch.Generator().manual_seed(seed)
    length = int(lengths.max())
    heads = [
        torch.randn(len(lengths), length, n_heads, 5, generator=generator, dtype=torch.float64) for _ in range(layers)
    ]
    place = torch.arange(length)
    distance = place[:, None] - place if direction == "past" else place - place[:, None]
    real = (place < lengths[:, None])[:, None, None, :] | (distance == 0)
    maps = []
    for _ in range(layers):
        scores = torch.randn(len(lengths), n_heads, length, length, generator=generator, dtype=torch.float64)
        seen = (distance >= 0) & (distance < window) & real
        maps.append(scores.masked_fill(~seen, -torch.inf).softmax(-1))
    return Trace(heads=heads, maps=maps)


def mirrored(trace: Trace, lengths) -> Trace:
    """The same maps seen from the other end of each sequence."""
    index = reversal(lengths, trace.maps[0].shape[-1])
    rows = torch.arange(len(lengths))[:, None, None]
    maps = [m[rows, :, index[:, :, None], index[:, None, :]].permute(0, 3, 1, 2) for m in trace.maps]
    return Trace(heads=trace.heads, maps=maps)


class TestTransfer:
    lengths = torch.tensor([6, 3, 1, 0])

    @given(st.lists(st.floats(-30, 30), min_size=2, max_size=6), st.integers(0, 100))
    @settings(deadline=None)
    def test_symmetric_kl_against_the_definition(self, logits, seed):
        p = torch.tensor(logits, dtype=torch.float64).log_softmax(0)
        q = torch.randn(len(p), generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log_softmax(0)
        expected = 0.5 * (
            reference.kl(p.exp().tolist(), q.exp().tolist()) + reference.kl(q.exp().tolist(), p.exp().tolist())
        )
        torch.testing.assert_close(symmetric_kl(p, q).item(), expected, rtol=1e-9, atol=1e-12)
        assert symmetric_kl(p, q) >= 0
        assert symmetric_kl(p, p) == 0

    @pytest.mark.parametrize("form", ["heads", "attention"])
    def test_equals_the_loops_without_padding(self, form):
        past = random_trace(0, self.lengths)
        future = random_trace(1, self.lengths, direction="future")

        def cut(trace):
            if form == "heads":
                return [[layer[row, :n] for layer in trace.heads] for row, n in enumerate([6, 3, 1])]
            return [[layer[row, :, :n, :n] for layer in trace.maps] for row, n in enumerate([6, 3, 1])]

        slow = {"heads": reference.head_transfer, "attention": reference.attention_transfer}[form]
        fast = transfer(past, future, self.lengths, form)
        torch.testing.assert_close(fast.item(), slow(cut(past), cut(future)), rtol=1e-9, atol=1e-12)

    @pytest.mark.parametrize("form", ["heads", "attention"])
    def test_zero_when_both_agree_and_symmetric(self, form):
        past = random_trace(0, self.lengths)
        agreeing = mirrored(past, self.lengths)
        other = random_trace(1, self.lengths, direction="future")
        assert transfer(past, agreeing, self.lengths, form).abs() < 1e-15
        there = transfer(past, other, self.lengths, form)
        assert there > 1e-3
        # the same two directions, seen from the other end
        back = transfer(mirrored(other, self.lengths), mirrored(past, self.lengths), self.lengths, form)
        torch.testing.assert_close(there, back)

    @pytest.mark.parametrize("form", ["heads", "attention"])
    def test_padding_has_no_effect_and_no_gradient(self, form):
        past, future = random_trace(0, self.lengths), random_trace(1, self.lengths, direction="future")
        expected = transfer(past, future, self.lengths, form)
        padded = torch.arange(6) >= self.lengths[:, None]
        for layer in past.heads:
            layer[padded] = float("inf")
        for layer in past.maps:
            layer[padded[:, None, :].expand(-1, 3, -1)] = 1e9
        torch.testing.assert_close(transfer(past, future, self.lengths, form), expected)
        leaves = past.heads if form == "heads" else past.maps
        for leaf in leaves:
            leaf.requires_grad_()
        transfer(past, future, self.lengths, form).backward()
        for leaf in leaves:
            gradient = leaf.grad if form == "heads" else leaf.grad.transpose(1, 2)
            assert torch.isfinite(gradient).all()
            assert (gradient[padded] == 0).all()
            assert (gradient[~padded] != 0).any()

    def test_distances_sum_to_one_and_end_at_the_window(self):
        trace = random_trace(0, torch.tensor([6, 5]), window=3)
        by_distance = distance_distribution(trace.maps[0], torch.tensor([6, 5]), "past")
        torch.testing.assert_close(by_distance.sum(-1), torch.ones(2, 3, dtype=torch.float64))
        assert (by_distance[..., 3:] == 0).all()
        assert (by_distance[..., :3] > 0).all()

    def test_zero_for_equal_weights_on_a_palindrome(self):
        encoder = make()
        encoder.future.load_state_dict(encoder.past.state_dict())
        # both directions read the same items in the same order: 1 2 3 2 1 without its last and without its first
        items, lengths = torch.tensor([[1, 2, 3, 2, 1]]), torch.tensor([5])
        assert encoder.both(*pair(items, lengths)).transfer.abs() < 1e-12
        items[0, 0] = 4
        assert encoder.both(*pair(items, lengths)).transfer > 1e-6
