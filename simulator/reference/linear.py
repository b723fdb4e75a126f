"""Projections: torch's own, or on a CPU with weights in oneDNN's order, which is 2 to 5 times faster for few tokens."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]


def make_linear(weight: Tensor, bias: Tensor | None = None, *, packed: bool = False) -> Linear:
    """Return x -> x W^T + b for a weight (outputs, inputs)."""
    if packed and can_pack():
        return _packed(weight, bias)
    return lambda x: functional.linear(x, weight, bias)


@cache
def can_pack() -> bool:
    """Tell whether this torch has the operators that Inductor uses, and they work: they are private, so may change."""
    weight, x = torch.arange(6.0).view(2, 3), torch.ones(4, 3)
    try:
        return torch.allclose(_packed(weight, None)(x), functional.linear(x, weight))
    except (AttributeError, RuntimeError):  # a NotImplementedError is a RuntimeError
        return False


def _packed(weight: Tensor, bias: Tensor | None) -> Linear:
    # A hint of the batch size below 16 chooses an order that halves the speed of everything but one token.
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda x: multiply(x, ordered, bias, "none", [], "")
