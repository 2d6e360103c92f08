"""`telemetry/while_serving.json`: what a trial's counters were while the trial itself served.

Loading and the baseline's rounds are left out. A sample averages over the time since the one
before, so the first of a round may hold a little of what ran before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from profiles.anatomy import step_total_ms
from profiles.record_files import read_or_set_aside, write_record
from profiles.records import Record
from profiles.telemetry.samples import SourceSamples, read_samples
from profiles.trial_folder import TrialFolder

if TYPE_CHECKING:
    import pandas as pd

FILE_NAME = "while_serving.json"
COUNTED = ("throttle_reasons", "foreign_processes", "gpu_processes")  # bits and counts, not means
TOGETHER = (
    ("sm_active_pct",),
    ("dram_active_pct",),
    ("tensor_active_pct",),
    ("dram_active_pct", "tensor_active_pct"),
    ("throttle_reasons",),
    ("foreign_processes",),
    ("gpu_processes",),
    ("host_cpu_pct",),
    ("process_cpu_pct",),
    ("host_cpu_pct", "process_cpu_pct"),
)
_READ = tuple(dict.fromkeys(column for columns in TOGETHER for column in columns))


class Tally(Record):
    """The samples of one source that were taken during the steps and lack none of `columns`.

    `counts` says of bits and counts how many samples had each value.
    """

    source: str
    columns: tuple[str, ...]
    samples: int
    means: dict[str, float] = {}
    counts: dict[str, dict[int, int]] = {}


class ServedTelemetry(Record):
    """One tally for each source and each group of `TOGETHER`, those without samples left out.

    `sources` were sampled at any time.
    """

    sources: list[str] = []
    tallies: list[Tally] = []

    def of(self, *columns: str) -> list[Tally]:
        """The tallies of a group of columns, one for each source that has samples."""
        return [tally for tally in self.tallies if tally.columns == columns]


def tally_served(samples: Mapping[str, SourceSamples], steps: pd.DataFrame) -> ServedTelemetry:
    """Tally the columns of `TOGETHER`; without steps no sample counts."""
    steps = steps.sort_values("start_s")
    starts = steps["start_s"].to_numpy(dtype=np.float64)
    ends = starts + step_total_ms(steps) / 1e3
    tallies = []
    for source, of in samples.items():
        last = np.searchsorted(starts, of.t_s, side="right") - 1
        served = last >= 0
        served[served] = of.t_s[served] <= ends[last[served]]
        values = {column: of.columns[column][served] for column in _READ}
        tallies += [_tally(source, columns, values) for columns in TOGETHER]
    return ServedTelemetry(
        sources=sorted(samples), tallies=[tally for tally in tallies if tally.samples]
    )


def served_telemetry(trial: TrialFolder, steps: pd.DataFrame) -> ServedTelemetry:
    """Read the trial's record, or make it from its samples where there is none."""
    written = read_or_set_aside(trial.telemetry_dir / FILE_NAME, ServedTelemetry)
    return written or tally_served(read_samples(trial.telemetry_dir, _READ), steps)


def write_served_telemetry(trial: TrialFolder) -> None:
    """Write the record of a trial whose steps and telemetry are whole. Raises StorageError."""
    served = tally_served(read_samples(trial.telemetry_dir, _READ), trial.steps())
    write_record(trial.telemetry_dir / FILE_NAME, served)


def _tally(
    source: str, columns: tuple[str, ...], values: Mapping[str, NDArray[np.float64]]
) -> Tally:
    whole = ~np.any([np.isnan(values[column]) for column in columns], axis=0)
    samples = int(whole.sum())
    means, counts = {}, {}
    for column in columns if samples else ():
        if column in COUNTED:
            each, seen = np.unique(values[column][whole].astype(np.int64), return_counts=True)
            counts[column] = dict(zip(each.tolist(), seen.tolist(), strict=True))
        else:
            means[column] = float(values[column][whole].mean())
    return Tally(source=source, columns=columns, samples=samples, means=means, counts=counts)
