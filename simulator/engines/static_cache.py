"""KV caches in shapes that never change, of which a decode step reads whole buckets."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from simulator.profile import Strict


class StaticCache(Strict):
    """Up to where a step reads such a cache; the first two are settings of `--set`, too.

    Optimum Habana: generation/utils.py (_sample and generate) and prepare_inputs_for_generation of its models, as of
    2024 and 2025, read 2026-11-27.
    """

    reuse_cache: bool = True  # off: without buckets the cache begins with prompts padded to their sequences' end
    bucket_size: Annotated[int, Field(ge=0)] = 0  # tokens; 0: the cache has one bucket, up to its sequences' end
    doubles: bool = False  # buckets double from bucket_size on; else each ends at a multiple of it

    @property
    def pads_prompts(self) -> bool:
        """Whether prompts are computed as if they had the tokens already that will be generated."""
        return not self.reuse_cache and not self.bucket_size

    def read_tokens(self, tokens: float | NDArray[np.float64], last: int) -> NDArray[np.float64]:
        """Return the tokens that a step reads of a sequence whose `tokens` are attended to and that ends with `last`.

        >>> StaticCache(bucket_size=128).read_tokens(np.array([100.0, 300.0]), 350)
        array([128., 350.])
        >>> StaticCache(bucket_size=128, doubles=True).read_tokens(np.array([100.0, 300.0]), 600)
        array([128., 512.])
        """
        attended = np.asarray(tokens, dtype=np.float64)
        if self.doubles:
            bucket = np.maximum(2.0 ** np.ceil(np.log2(attended)), self.bucket_size)
            return np.minimum(bucket, max(last, self.bucket_size))
        size = float(self.bucket_size or last)
        return np.minimum(np.ceil(attended / size) * size, last)
