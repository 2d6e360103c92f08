"""Which prompts are served: built-in, from a file, or only the shape of a traced load.

`load_workload` gives text, `build_requests` renders and tokenizes it for an engine.
"""

from tuner.workloads.builtin_prompts import BUILTIN_CATEGORIES
from tuner.workloads.load import load_workload
from tuner.workloads.requests import SHAPE_ONLY_CATEGORY, RequestBatch, build_requests
from tuner.workloads.tokenizer import HFTokenizer, Tokenizer
from tuner.workloads.workload import Message, Prompt, ShapeRequest, Workload

__all__ = [
    "BUILTIN_CATEGORIES",
    "SHAPE_ONLY_CATEGORY",
    "HFTokenizer",
    "Message",
    "Prompt",
    "RequestBatch",
    "ShapeRequest",
    "Tokenizer",
    "Workload",
    "build_requests",
    "load_workload",
]
