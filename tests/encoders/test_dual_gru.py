"""DualGRU4Rec's encoder: the future network reads the sequence in reverse, and its states are one head."""

import torch

from recbole_hyper.encoders.dual_gru import DualGRUEncoder
from tests.encoders.duals import make, pair
from tests.encoders.windowed import random_batch


def test_the_states_are_traced_as_one_head():
    encoder = make(DualGRUEncoder)
    items, lengths = random_batch([8, 3])
    states, trace = encoder.trace_future(items, lengths)
    assert len(trace.heads) == 1
    assert trace.maps == []
    assert torch.equal(trace.heads[0].squeeze(2), states)


def test_the_future_network_reads_the_sequence_in_reverse():
    encoder = make(DualGRUEncoder)
    items, lengths = random_batch([6])
    states = encoder.both(*pair(items, lengths))
    reverse, _ = encoder.future.gru(encoder.item_embedding(items[:, 1:].flip(1)))
    torch.testing.assert_close(states.future, encoder.future.dense(reverse).flip(1))
    forward, _ = encoder.past.gru(encoder.item_embedding(items[:, :-1]))
    torch.testing.assert_close(states.past, encoder.past.dense(forward))
