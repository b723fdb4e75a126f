"""Projections: torch's own, or on a CPU with weights in oneDNN's order, which is 2 to 5 times faster for few tokens."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]  # [T, inputs] -> [T, outputs], in the weight's dtype


def make_linear(weight: Tensor, bias: Tensor | None = None, *, packed: bool = False) -> Linear:
    """Return x -> x W^T + b, for a weight [outputs, inputs] and a bias [outputs] of one dtype.

    `packed` asks for oneDNN's order of the weight; where this machine has none for the dtype, torch's own is used.
    """
    if packed and can_pack(weight.dtype):
        return _packed(weight, bias)
    return lambda x: functional.linear(x, weight, bias)


@cache
def can_pack(dtype: torch.dtype) -> bool:
    """Tell whether oneDNN can reorder and multiply weights of a dtype on this CPU, by trying a small one.

    The operators are those that Inductor uses: private, so they may change. Which dtypes they take depends on the CPU:
    bf16 needs AVX-512 or AVX-NE-CONVERT on x86, and a torch for ARM may have none of them.
    """
    weight, x = torch.arange(6.0, dtype=dtype).view(2, 3), torch.ones(4, 3, dtype=dtype)
    try:
        return torch.allclose(_packed(weight, None)(x), functional.linear(x, weight))
    except (AttributeError, RuntimeError):  # a NotImplementedError is a RuntimeError
        return False


def _packed(weight: Tensor, bias: Tensor | None) -> Linear:
    # A hint of the batch size below 16 chooses an order that halves the speed of everything but one token.
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda x: multiply(x, ordered, bias, "none", [], "")
