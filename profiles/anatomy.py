"""Where the wall time of a trial went."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from profiles.records import STEP_PHASES

if TYPE_CHECKING:
    import pandas as pd


def step_total_ms(steps: pd.DataFrame) -> NDArray[np.float64]:
    """Wall time of each step, null phases (see `read_records`) left out."""
    return steps[[f"{phase}_ms" for phase in STEP_PHASES]].sum(axis=1).to_numpy(dtype=np.float64)
