"""Window sizes of DualRec's heads: equation 8 and lists."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recbole_hyper.encoders.windows import resolve_windows, window_sizes
from tests.raising import refused
from tests.reference import dualrec as reference


class TestWindowSizes:
    @pytest.mark.parametrize(
        ("n_heads", "expected"), [(2, (2, 50)), (4, (2, 3, 20, 50)), (8, (2, 3, 4, 5, 7, 11, 21, 50))]
    )
    def test_by_hand_for_50(self, n_heads, expected):
        # h = 4: 2 + ceil(48 / e) = 2 + 18 = 20 for head 3
        assert window_sizes(n_heads, 50) == expected

    @given(half=st.integers(1, 16), extra=st.integers(0, 300))
    @settings(deadline=None)
    def test_equals_equation_8_in_50_digits(self, half, extra):
        n = half + 1 + extra
        expected = [reference.window_size(i, 2 * half, n) for i in range(1, 2 * half + 1)]
        assert list(window_sizes(2 * half, n)) == expected

    @pytest.mark.parametrize("n_heads", [0, 1, 3, 7, -2])
    def test_odd_or_no_heads_are_refused(self, n_heads):
        with refused(ValueError, "number", "heads"):
            window_sizes(n_heads, 50)

    def test_too_many_heads_for_the_length_are_refused(self):
        assert window_sizes(8, 5) == (2, 3, 4, 5, 5, 5, 5, 5)
        with refused(ValueError, "MAX_ITEM_LIST_LENGTH"):
            window_sizes(8, 4)

    def test_words_and_lists(self):
        assert resolve_windows("full", 3, 7) == (7, 7, 7)
        assert resolve_windows([1, 7, 2], 3, 7) == (1, 7, 2)
        with refused(ValueError, "1..7"):
            resolve_windows([1, 8, 2], 3, 7)
        with refused(ValueError, "1..7"):
            resolve_windows([1, 0, 2], 3, 7)
        for broken in (2.9, 2.0, True):
            with refused(ValueError, str(broken)):
                resolve_windows([1, broken, 3], 3, 9)
        with refused(ValueError, "n_heads=3"):
            resolve_windows([1, 2], 3, 7)
        with refused(ValueError, "multi_scale"):
            resolve_windows("wide", 3, 7)
