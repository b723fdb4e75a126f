"""Arrays by the numbers that they hold; the scheduler, which imports nothing, has its own."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Array = float | Floats  # a number, or numbers of any shape
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
