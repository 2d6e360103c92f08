"""The `redrafter` engine: loads weights once and serves any (beam_width, draft_len) on them."""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import torch

from profiles.records import MemorySplit, RequestRecord, StepRecord, TrialConfig
from tuner.engines.base import Engine, Prepared, Progress, Request, Support
from tuner.engines.redrafter.config import LlamaConfig
from tuner.engines.redrafter.decode import DecodeLoop
from tuner.engines.redrafter.draft_length import DraftLength
from tuner.engines.redrafter.drafters import DraftMethod, load_draft_method
from tuner.engines.redrafter.drafters.needs import trained_draft_len
from tuner.engines.redrafter.kv_cache import KVCache, kept_dtype
from tuner.engines.redrafter.linear import (
    DEFAULT_PRECISION,
    DTYPES,
    Compute,
    compute_path,
    drafter_compute,
    module_bytes,
)
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.memory import (
    blocks_needed,
    positions_needed,
    predict_memory,
    refuse_unless_it_fits,
)
from tuner.engines.redrafter.quant.kernels import describe_kernels
from tuner.engines.redrafter.quant.load import load_computed
from tuner.engines.redrafter.quant.support import QUANTIZED, refused
from tuner.errors import BadInput, OutOfMemory, UnsupportedConfig
from tuner.models import BUILTIN_MODEL, resolve_model
from tuner.models.drafters import no_drafter

SHIPPED_DRAFTER = Path(__file__).parent / "shipped" / BUILTIN_MODEL
LOOPS_KEPT = 4  # configs whose graphs stay captured: a trial, its baseline and room to compare

T = TypeVar("T")


class RedrafterEngine(Engine):
    """Our engine. Weights stay loaded between configs; only the KV cache is made anew."""

    name = "redrafter"

    def __init__(self) -> None:
        self._model: Llama | None = None
        self._drafter: DraftMethod | None = None
        self._cache: KVCache | None = None
        self._compute: Compute | None = None
        self._loaded_model: tuple[str, Compute] | None = None
        self._loaded_drafter: tuple[str, int | None, Compute] | None = None
        self._reserved = (0, 0)  # places and positions that the drafter has room for
        self._loops: dict[tuple[DraftMethod | None, int, DraftLength, int, int], DecodeLoop] = {}
        self._loop: DecodeLoop | None = None
        self._config: TrialConfig | None = None

    @classmethod
    def support(cls, device: str = "auto") -> Support:
        """Say what this host can run."""
        try:
            chosen = pick_device(device)
        except BadInput as error:
            return Support(available=False, reason=str(error))
        unable = refused(chosen)
        return Support(
            available=True,
            device=chosen.type,
            gpu_uuids=_gpu_uuids(chosen),
            precisions=(*DTYPES, *(p for p in QUANTIZED if p not in unable)),
            refused_precisions=unable,
        )

    @classmethod
    def longest_draft(cls, config: TrialConfig) -> int | None:
        """Read it from the drafter's config.json."""
        return trained_draft_len(_drafter_name(config))

    def prepare(
        self, config: TrialConfig, max_seq_len: int, on_progress: Progress | None = None
    ) -> Prepared:
        """Load what `config` needs that is not loaded yet, and make room for its batch."""
        started = time.perf_counter()
        progress = on_progress or (lambda fraction, text: None)
        device = pick_device(config.device)
        compute = compute_path(config.quantization or DEFAULT_PRECISION, device)
        self._loop = None
        predicted = _fitting(config, compute, max_seq_len)
        progress(0.0, f"loading {config.model}")
        model = self._load_model(config.model, compute)
        progress(0.7, "loading drafter")
        drafter = self._load_drafter(config, model, compute)
        progress(0.9, "reserving KV memory")
        if max_seq_len > model.config.max_position:
            raise BadInput(
                "max_seq_len", max_seq_len, f"the model reads {model.config.max_position} positions"
            )
        self._make_room(model, config, max_seq_len, compute)
        if drafter is not None and config.draft_len > 0:
            positions = positions_needed(config, max_seq_len)
            self._make_places(drafter, config.batch_size, positions)
        self._loop = self._loop_for(model, drafter, config, max_seq_len)
        self._config, self._compute = config, compute
        progress(1.0, "ready")
        return Prepared(
            cost_s=time.perf_counter() - started,
            device=_device_name(device),
            precision=compute.precision,
            compute=_described(compute, model, config),
            memory_predicted=predicted,
        )

    def serve(
        self, requests: Iterable[Request], seed: int = 0, ahead: bool = True
    ) -> Iterator[StepRecord | RequestRecord]:
        """Serve `requests`, at most `batch_size` at once."""
        assert self._loop and self._config, "prepare comes first"
        try:
            yield from self._loop.serve(requests, seed, ahead)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(f"serving {self._config.batch_size} at once: {error}") from error

    def memory(self) -> MemorySplit:
        """Bytes held now, split by use."""
        assert self._model and self._cache and self._compute, "prepare comes first"
        weights = module_bytes(self._model)
        drafter = self._drafter.nbytes if self._drafter else 0
        kv = self._cache.nbytes
        if self._compute.device.type == "cuda":
            held = torch.cuda.memory_allocated(self._compute.device)
            peak = torch.cuda.max_memory_allocated(self._compute.device)
        else:
            held = psutil.Process().memory_info().rss
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return MemorySplit(
            weights_bytes=weights,
            drafter_bytes=drafter,
            kv_bytes=kv,
            rest_bytes=max(0, held - weights - drafter - kv),
            peak_bytes=peak,
        )

    def close(self) -> None:
        """Release everything."""
        self._loops, self._loop = {}, None
        self._model = self._drafter = self._cache = None
        self._loaded_model = self._loaded_drafter = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _load_model(self, name: str, compute: Compute) -> Llama:
        if self._model is None or self._loaded_model != (name, compute):
            self.close()
            folder = resolve_model(name)
            self._model = _fit(lambda: load_computed(folder, compute))
            self._loaded_model = (name, compute)
            _forget_peak(compute.device)
        return self._model

    def _make_room(
        self, model: Llama, config: TrialConfig, max_seq_len: int, compute: Compute
    ) -> None:
        """Have a KV cache and positions for `config`; ones that are large enough stay."""
        device, dtype = compute.device, compute.activation_dtype
        kept = kept_dtype(config.kv_cache_dtype, device, dtype)
        reach, blocks = positions_needed(config, max_seq_len), blocks_needed(config, max_seq_len)
        positions = 0 if model.rotation is None else model.rotation.shape[0]
        if positions < reach or not _serves(self._cache, blocks, kept):
            # NOTE: nothing here may hold the old cache, or both are in memory at once.
            self._loops, self._cache = {}, None
            model.prepare_positions(reach, device, dtype)
            self._cache = _fit(lambda: KVCache(model.config, blocks, device, dtype, kept))

    def _make_places(self, drafter: DraftMethod, places: int, positions: int) -> None:
        """Have room in the drafter's own buffers; what is large enough stays."""
        if places > self._reserved[0] or positions > self._reserved[1]:
            self._loops = {}  # their graphs know the buffers that go
            _fit(lambda: drafter.reserve(places, positions))
            self._reserved = places, positions

    def _loop_for(
        self, model: Llama, drafter: DraftMethod | None, config: TrialConfig, max_seq_len: int
    ) -> DecodeLoop:
        """Return the loop of `config`, with its graphs where it ran before."""
        cache = self._cache
        assert cache is not None
        length = DraftLength(config.draft_len, config.draft_len_min, config.speculate_up_to)
        sizes = config.beam_width, length, config.batch_size, max_seq_len
        key = drafter if config.draft_len else None, *sizes
        if key not in self._loops:
            if len(self._loops) == LOOPS_KEPT:
                del self._loops[next(iter(self._loops))]
            loop = _fit(lambda: DecodeLoop(model, drafter, cache, *sizes))
            _fit(lambda: loop.capture(sampled=False))
            self._loops[key] = loop
        return self._loops[key]

    def _load_drafter(
        self, config: TrialConfig, model: Llama, compute: Compute
    ) -> DraftMethod | None:
        """Return the drafter that `config` needs; one that is loaded is kept for later configs."""
        if config.draft_len == 0:
            return self._drafter
        name, folder = _drafter_name(config), resolve_model(config.model)
        size = config.draft_vocab_size
        drafts = drafter_compute(compute, config.drafter_quantization)
        if size is not None and size < config.beam_width:
            raise BadInput(
                "draft_vocab_size", size, f"take at least beam_width, {config.beam_width}"
            )
        if self._drafter is None or self._loaded_drafter != (name, size, drafts):
            self._drafter = _fit(lambda: load_draft_method(name, model, folder, drafts, size))
            self._loaded_drafter, self._reserved = (name, size, drafts), (0, 0)
            _forget_peak(compute.device)
        longest = self._drafter.max_draft_len
        if longest is not None and config.draft_len > longest:
            raise BadInput(
                "draft_len", config.draft_len, f"the drafter was trained for at most {longest}"
            )
        return self._drafter


def _serves(cache: KVCache | None, blocks: int, kept: torch.dtype) -> bool:
    return cache is not None and cache.blocks >= blocks and cache.data.dtype == kept


def _described(compute: Compute, model: Llama, config: TrialConfig) -> str:
    parts = [compute.description]
    if compute.quantized:
        parts.append(describe_kernels(model))
    if config.kv_cache_dtype != "auto":
        parts.append(f"KV cache in {config.kv_cache_dtype}")
    if config.draft_len and config.drafter_quantization is not None:
        drafts = drafter_compute(compute, config.drafter_quantization)
        parts.append(f"drafter: {drafts.description}")
    return "; ".join(parts)


def _forget_peak(device: torch.device) -> None:
    """Let the peak be that of serving, not of quantizing."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _drafter_name(config: TrialConfig) -> str:
    if config.drafter is not None:
        return config.drafter
    if config.model == BUILTIN_MODEL:
        return str(SHIPPED_DRAFTER)
    raise no_drafter(config.model)


def _fitting(config: TrialConfig, compute: Compute, max_seq_len: int) -> MemorySplit:
    """Predict the memory of `config`. Raises OutOfMemory where the device has less."""
    base = LlamaConfig.from_dir(resolve_model(config.model))
    drafter = _drafter_name(config) if config.draft_len else ""
    predicted = predict_memory(base, drafter, config, compute, max_seq_len)
    refuse_unless_it_fits(config, base, drafter, compute, predicted, _room(compute.device))
    return predicted


def _fit(make: Callable[[], T]) -> T:
    """Run `make`, naming an allocation that fails."""
    try:
        return make()
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(f"loading does not fit: {str(error).splitlines()[0]}") from error


def _room(device: torch.device) -> int:
    """Bytes that the engine could have: those that are free and those that it holds."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]) + torch.cuda.memory_reserved(device)
    return int(psutil.virtual_memory().available + psutil.Process().memory_info().rss)


def pick_device(name: str) -> torch.device:
    """Return the device called `name`; `auto` is CUDA where torch finds it. Raises BadInput."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cpu":
        return torch.device("cpu")
    if name.split(":")[0] != "cuda":
        raise BadInput("device", name, "use auto, cpu, cuda or cuda:N")
    if not torch.cuda.is_available():
        raise UnsupportedConfig("device", name, "torch finds no CUDA device here; use cpu")
    return torch.device(name)


def _gpu_uuids(device: torch.device) -> tuple[str, ...]:
    if device.type != "cuda":
        return ()
    return (f"GPU-{torch.cuda.get_device_properties(device).uuid}",)


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return "cpu"
