"""Keys of earlier releases of RecBole in today's names."""

from typing import Any

import pytest

from recbole_hyper.errors import ConfigError
from recbole_hyper.host import old_keys
from tests.raising import refused


@pytest.mark.parametrize(
    ("given", "sequential", "found"),
    [
        ({"eval_setting": "TO_RS,uni100", "split_ratio": [7, 2, 1]}, True,
         {"split": {"RS": [7, 2, 1]}, "order": "TO", "group_by": "user", "mode": "uni100"}),
        ({"eval_setting": "RO_RS,full", "group_by_user": False}, False,
         {"split": {"RS": [0.8, 0.1, 0.1]}, "order": "RO", "group_by": "none", "mode": "full"}),
        ({"eval_setting": "RO_LS,pop100", "leave_one_num": 2}, False,
         {"split": {"LS": "valid_and_test"}, "order": "RO", "group_by": "user", "mode": "pop100"}),
        # by default, which depended on the kind of the model
        ({"split_ratio": [0.8, 0.1, 0.1]}, True,
         {"split": {"LS": "valid_and_test"}, "order": "TO", "group_by": "user", "mode": "full"}),
        ({"split_ratio": [0.6, 0.2, 0.2]}, False,
         {"split": {"RS": [0.6, 0.2, 0.2]}, "order": "RO", "group_by": "user", "mode": "full"}),
        ({"eval_setting": "RO_RS"}, False,
         {"split": {"RS": [0.8, 0.1, 0.1]}, "order": "RO", "group_by": "user", "mode": "labeled"}),
    ],
)  # fmt: skip
def test_evaluation_of_0_x(given: dict[str, Any], sequential: bool, found: dict[str, Any]) -> None:
    content, lines = old_keys.translated(given, sequential=sequential)
    assert content == {"eval_args": found}
    assert len(lines) == 1
    assert all(key in lines[0] for key in given)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"min_user_inter_num": 5}, {"user_inter_num_interval": "[5,inf)"}),
        ({"min_item_inter_num": 2, "max_item_inter_num": 9}, {"item_inter_num_interval": "[2,9]"}),
        ({"max_user_inter_num": 9}, {"user_inter_num_interval": "[0,9]"}),
        ({"max_user_inter_num": None, "min_user_inter_num": 0}, {"user_inter_num_interval": "[0,inf)"}),
        ({"real_time_process": True, "draw_loss_pic": False, "fill_nan": True}, {}),
        ({"neg_sampling": None}, {"train_neg_sample_args": None}),
        ({"neg_sampling": {"uniform": 1, "dynamic": 5}}, {"train_neg_sample_args": {
            "distribution": "uniform", "sample_num": 1, "dynamic": True, "candidate_num": 5}}),
        # what the file says by today's name counts
        ({"min_user_inter_num": 5, "user_inter_num_interval": "[3,inf)"}, {"user_inter_num_interval": "[3,inf)"}),
        ({"train_neg_sample_args": {"distribution": "uniform", "sample_num": 4}}, {
            "train_neg_sample_args": {"distribution": "uniform", "sample_num": 4}}),
    ],
)  # fmt: skip
def test_other_old_keys(given: dict[str, Any], found: dict[str, Any]) -> None:
    assert old_keys.translated(given)[0] == found


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"eval_setting": "TO_LS,full", "leave_one_num": 1}, ("leave_one_num=1", "{LS: test_only}")),
        ({"eval_setting": "by_value"}, ("eval_setting='by_value'", "TO_LS,full")),
        ({"neg_sampling": 5}, ("neg_sampling=5", "{uniform: 1}")),
        ({"lowest_val": 3}, ("lowest_val=3", "{rating: 3}")),
    ],
)
def test_what_has_no_equal_is_refused(given: dict[str, Any], named: tuple[str, ...]) -> None:
    with refused(ConfigError, *named):
        old_keys.translated(given)
