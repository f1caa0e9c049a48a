"""The exact cross-entropy on a GPU with Triton's kernels, without a tile in memory.

It was never timed, so it runs only with ``triton_kernel``. Triton is imported when a loss is computed.
"""

import importlib.util
import os
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from recbole_hyper.losses._stream import ItemStream, _ItemGradients

if TYPE_CHECKING:
    from recbole_hyper.kernels.triton_softmax import Operands


class TritonStream(ItemStream):
    """One evaluation with three kernels over the items: totals, gradients of states, gradients of items.

    It has no tiles and needs no budget; see ``kernels.triton_softmax``. ValueError if :func:`why_not` has a reason.
    """

    def _plan(self, budget: int | None) -> None:
        self.terms = self._all_terms()
        reason = why_not(self)
        if reason is not None:
            raise ValueError(f"triton_kernel=True: {reason}; leave it out")

    def _operands(self) -> "Operands":
        from recbole_hyper.kernels.triton_softmax import Operands

        terms, lifted = self.terms, self.lifted
        assert terms is not None
        return Operands(
            space=self.vectors[:, : self.dim].contiguous(),
            weight=self.weight.detach().to(self.dtype).contiguous(),
            column=None if terms.extra is None else self.vectors[:, self.dim].contiguous(),
            state_exponent=None if lifted.exponent is None else lifted.exponent.contiguous(),
            multiplier=terms.multiplier,
            extra=None if terms.extra is None else terms.extra[:, 0].contiguous(),
            scale=terms.scale,
            item_exponent=terms.exponent,
            asinh=self.geometry.has_link,
            padding=-1 if self.padding_idx is None else self.padding_idx,
        )

    def _sweep(self, losses: Tensor, row_weights: Tensor | None) -> None:
        from recbole_hyper.kernels import triton_softmax

        operands = self._operands()
        top, total = triton_softmax.totals(operands)
        losses.copy_(top - self.target_logits + total.log())
        if row_weights is None:
            return
        factor = row_weights / total
        if self.d_vectors is not None:
            space, column = triton_softmax.state_gradients(operands, top, factor)
            self.d_vectors[:, : self.dim].add_(space)
            if operands.extra is not None:
                self.d_vectors[:, self.dim].add_(column)
        if self.d_weight is not None:
            extra, scale = losses.new_empty(2, self.n_items)
            triton_softmax.item_gradients(operands, top, factor, self.d_weight, extra, scale)
            gradients = _ItemGradients(
                self.d_weight,
                None if operands.extra is None else extra.unsqueeze(1),
                None if operands.scale is None else scale,
            )
            self._lift_all_back(gradients, row_weights)


def why_not(stream: ItemStream) -> str | None:
    """Return why the kernels cannot compute this evaluation, or None."""
    from_interpreter = os.environ.get("TRITON_INTERPRET") == "1"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if stream.vectors.device.type != "cuda" and not from_interpreter:
        return f"the kernels run on a CUDA or ROCm device, not on {stream.vectors.device}"
    if stream.dtype != torch.float32:
        return f"the kernels compute in float32, not in {stream.dtype}"
    from recbole_hyper.kernels.triton_softmax import WIDEST

    if stream.dim > WIDEST:
        return f"the kernels support vectors of at most {WIDEST} numbers, not {stream.dim}"
    geometry, terms = stream.geometry, stream.terms
    extra = terms is not None and terms.extra is not None and terms.extra.shape[1] > 1
    if (geometry.has_link and not geometry.asinh_link) or extra:
        return f"the kernels support the link asinh and one extra column, not {type(geometry).__name__}"
    return None
