"""The workload formats that are recognised, most particular first."""

from tuner.workloads.formats.azure_trace import AZURE_TRACE
from tuner.workloads.formats.format import Contents, Format
from tuner.workloads.formats.messages import MESSAGES
from tuner.workloads.formats.mooncake_trace import MOONCAKE_TRACE
from tuner.workloads.formats.plain_prompt import PLAIN_PROMPT
from tuner.workloads.formats.sharegpt import SHAREGPT
from tuner.workloads.formats.turns import TURNS

FORMATS: tuple[Format, ...] = (
    TURNS,
    SHAREGPT,
    MESSAGES,
    MOONCAKE_TRACE,
    AZURE_TRACE,
    PLAIN_PROMPT,
)

__all__ = ["FORMATS", "Contents", "Format"]
