"""Names and switches of the stack that RecBole expects."""

import warnings

import numpy as np
import scipy.sparse
import torch

from recbole_hyper.hosted.patches import stack


def test_numpy_names_that_exist_are_left_alone() -> None:
    assert np.bool is np.bool_
    assert np.__dict__["float"] is np.float64
    assert isinstance(1.0, np.float64) is False


def test_dok_matrix_update() -> None:
    matrix = scipy.sparse.dok_matrix((3, 3))
    matrix._update({(0, 1): 2.0, (2, 2): 5.0})
    assert matrix.toarray().sum() == 7


def test_sine_leaves_the_anomaly_detection_of_torch_as_it_is() -> None:
    import recbole.model.sequential_recommender.sine

    assert recbole.model.sequential_recommender.sine.SINE
    assert not torch.is_anomaly_enabled()


def test_a_count_is_collected_as_it_is() -> None:
    """RecBole 1.2.1 calls .cpu() of all that its collector has."""
    from collections import Counter

    from recbole.evaluator.collector import Collector, DataStruct

    collector = object.__new__(Collector)
    collector.data_struct = DataStruct()
    collector.data_struct.set("data.num_items", 7)
    collector.data_struct.set("data.count_items", Counter({1: 2}))
    collector.data_struct.update_tensor("rec.items", torch.tensor([[1, 2]]))
    found = collector.get_data_struct()
    assert (found.get("data.num_items"), found.get("data.count_items")) == (7, Counter({1: 2}))
    assert found.get("rec.items").tolist() == [[1, 2]]
    assert "rec.items" not in collector.data_struct
    assert "data.num_items" in collector.data_struct


def test_geoopts_scripted_functions_warn_no_user() -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.resetwarnings()
        stack.quiet_known_warnings()
        for kind in (DeprecationWarning, FutureWarning):
            warnings.warn("`torch.jit.script` is deprecated. Please switch to `torch.compile`.", kind, stacklevel=1)
    assert seen == []
