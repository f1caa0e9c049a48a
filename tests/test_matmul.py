"""Products by the faster library: as exact as float32, and nothing stays switched."""

import threading

import pytest
import torch

from recbole_hyper import matmul
from recbole_hyper.evaluation.results import versions
from recbole_hyper.matmul import asked_precision, float32_products, product_library

CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", [(256, 64, 2048), (37, 64, 1711), (1, 5, 3), (256, 65, 2048), (2048, 256, 64)])
def test_products_are_float32(shape: tuple[int, int, int]) -> None:
    rows, width, columns = shape
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(rows, width, generator=generator)
    right = torch.randn(width, columns, generator=generator)
    with float32_products(CPU):
        found = left @ right
    exact = left.double() @ right.double()
    # the bound of a sum of ``width`` rounded products
    bound = width * torch.finfo(torch.float32).eps * (left.abs() @ right.abs()).double()
    assert bool(((found - exact).abs() <= bound).all())


def test_the_precision_comes_back() -> None:
    with pytest.raises(ZeroDivisionError), float32_products(CPU):
        _ = 1 / 0
    assert torch.get_float32_matmul_precision() == "highest"


def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "keeps_float32", lambda: True)
    torch.set_float32_matmul_precision("high")
    try:
        with float32_products(CPU):
            assert torch.get_float32_matmul_precision() == asked_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    with float32_products(CPU):
        assert torch.get_float32_matmul_precision() == "medium"
        assert asked_precision() == "highest"
    with float32_products(torch.device("cuda")):
        assert torch.get_float32_matmul_precision() == "highest"


def test_a_process_that_uses_a_gpu_keeps_its_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The precision is one for all threads: one that multiplies on a GPU would inherit it."""
    monkeypatch.setattr(matmul, "keeps_float32", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with float32_products(CPU):
        assert torch.get_float32_matmul_precision() == "highest"
    assert matmul.product_library() == "torch"


def test_overlapping_threads_leave_nothing_switched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first thread leaves while the second is inside, whose products keep their library."""
    monkeypatch.setattr(matmul, "keeps_float32", lambda: True)
    entered, leave, seen = threading.Event(), threading.Event(), []

    def other() -> None:
        with float32_products(CPU):
            entered.set()
            leave.wait(10)
            seen.append(torch.get_float32_matmul_precision())

    with float32_products(CPU):
        thread = threading.Thread(target=other)
        thread.start()
        assert entered.wait(10)
    leave.set()
    thread.join()
    assert seen == ["medium"]
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize(("exact", "library"), [(True, "oneDNN"), (False, "torch")])
def test_results_name_the_library(exact: bool, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "keeps_float32", lambda: exact)
    assert product_library() == library == versions()["cpu products"]
    assert product_library("cuda") == "torch"


def test_an_inexact_cpu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where less precision is really used, as on AMX units, nothing is switched."""
    true_product = torch.Tensor.__matmul__

    def rounded(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        if torch.get_float32_matmul_precision() == "medium":
            return true_product(one.bfloat16(), other.bfloat16()).float()
        return true_product(one, other)

    monkeypatch.setattr(torch.Tensor, "__matmul__", rounded)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    matmul.keeps_float32.cache_clear()
    try:
        assert not matmul.keeps_float32()
        with float32_products(CPU):
            assert torch.get_float32_matmul_precision() == "highest"
    finally:
        monkeypatch.undo()
        matmul.keeps_float32.cache_clear()
