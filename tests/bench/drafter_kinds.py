"""Four kinds of drafters on the same answers: `python -m tests.bench.drafter_kinds [--help]`.

The base model answers short prompts of six categories and tasks over long documents, greedily.
Every drafter is led through these answers; printed is the acceptance length (committed tokens a
step) by category and by prompt length, exact because the text does not depend on the drafter.

The causal LM and the local-attention drafter are trained first, on answers that the base model
writes here: to turns it invents and to tasks over documents made of its own answers. No test
document is among them. `--seconds` bounds generating, training and measuring together.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from profiles.statistics import repeats_itself
from tuner.engines.redrafter.drafters import load_draft_method
from tuner.engines.redrafter.drafters.causal_lm_training import CausalLMSpec, train_causal_lm
from tuner.engines.redrafter.drafters.local_attention_training import (
    LocalAttentionSpec,
    train_local_attention,
)
from tuner.engines.redrafter.drafters.look_back import LookBackConfig
from tuner.engines.redrafter.drafters.walk import Steps, walk
from tuner.engines.redrafter.engine import SHIPPED_DRAFTER, pick_device
from tuner.engines.redrafter.linear import compute_path
from tuner.engines.redrafter.llama import Llama
from tuner.engines.redrafter.training.answers import SHORT, Answers, prepare_answers
from tuner.engines.redrafter.training.batch_decode import Decoding, decode
from tuner.engines.redrafter.training.forward import load_frozen
from tuner.engines.redrafter.training.generate import GenerateSpec, generate_answers
from tuner.engines.redrafter.training.progress import TrainRow
from tuner.engines.redrafter.training.rows import AnswerRows
from tuner.errors import BadInput
from tuner.models import resolve_model
from tuner.workloads import HFTokenizer, load_workload
from tuner.workloads.workload import Message

GRID = ((1, 4), (4, 4))
TASKS = {
    "long: summarize": "Summarize the text above in three sentences.",
    "long: extract": "Copy all sentences of the text above that name a day, a date or a number.",
    "long: edit": "Write the text above again, word for word, but in British spelling.",
}
LENGTH_BOUNDS = (128, 512, 1024, 4096)  # of prompts, tokens
Answered = tuple[str, list[int], list[int]]
"""Category, prompt and greedy answer."""
SHARES = {"turns": 0.2, "documents": 0.15, "causal LM": 0.22, "local attention": 0.2}


def main(arguments: Sequence[str] | None = None) -> None:
    options = read_options(arguments)
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)

    folder, device = resolve_model(options.model), pick_device(options.device)
    names = {"recurrent": options.recurrent, "retrieval": "retrieval"}
    names = {kind: name for kind, name in names.items() if kind in options.kinds.split(",")}
    if options.store:
        names["retrieval + store"] = f"retrieval:{options.store}"
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(options.work or scratch)
        names |= train(options, folder, str(device), work, say)
        base = load_frozen(folder, device, LENGTH_BOUNDS[-1])
        pairs = answer(base, test_prompts(folder, options), folder, options.max_new_tokens)
        left_out = sum(map(repeats, pairs))
        say(f"{len(pairs)} prompts answered, {left_out} repeat themselves or are short")
        compute = compute_path("bf16" if device.type == "cuda" else "fp32", device)
        cells: dict[tuple[str, tuple[int, int]], Steps] = {}
        read: dict[tuple[tuple[int, ...], int], Answers] = {}  # of one kind after the other
        categories, prompts, answers = map(list, zip(*pairs, strict=True))
        for kind, name in names.items():
            method = load_draft_method(name, base, folder, compute)
            needed = method.context_layers, method.context_window
            if needed not in read:
                read = {needed: prepare_answers(base, prompts, answers, categories, method)}
            for cell in GRID:
                cells[kind, cell] = walk(method, read[needed], *cell)
                say(f"{kind} at {cell}: {acceptance(cells[kind, cell], range(len(pairs)))}")
            print_tables(pairs, cells)


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=220.0)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--recurrent", default=str(SHIPPED_DRAFTER), help="a directory")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--prompts", type=int, default=16, help="of every short category")
    parser.add_argument("--documents", type=int, default=4, help="of every task and length")
    parser.add_argument("--lengths", default="256,512,1024,2048", help="of documents, tokens")
    parser.add_argument("--max-new-tokens", type=int, default=192)
    parser.add_argument("--turns", type=int, default=40_000, help="invented for training, at most")
    parser.add_argument("--training-documents", type=int, default=768)
    parser.add_argument("--tokens-per-step", type=int, default=8192, help="of training")
    parser.add_argument("--steps", type=int, default=10**9, help="of training, at most")
    parser.add_argument("--layers", default="0,1,14,28,29", help="of the causal LM")
    parser.add_argument("--window", type=int, default=1024, help="of the local attention")
    parser.add_argument("--kinds", default="recurrent,retrieval,causal LM,local attention")
    parser.add_argument("--store", help="text for the retrieval drafter to copy from as well")
    parser.add_argument("--work", help="folder of the trained drafters; what is there is kept")
    return parser.parse_args(arguments)


def train(
    options: argparse.Namespace, folder: Path, device: str, work: Path, say: Callable[[str], None]
) -> dict[str, str]:
    """Train what is not in `work` yet; return the drafters' names."""
    out = {"causal LM": work / "causal_lm", "local attention": work / "local_attention"}
    out = {kind: path for kind, path in out.items() if kind in options.kinds.split(",")}
    missing = [kind for kind, path in out.items() if not (path / "config.json").is_file()]
    if missing:
        data = make_data(options, folder, device, work, say)
    for kind in missing:
        settings = {
            "model_dir": folder, "data": data, "out": out[kind], "device": device,
            "tokens_per_step": options.tokens_per_step, "max_steps": options.steps,
            "max_seconds": SHARES[kind] * options.seconds, "report_every": 200,
            "evaluate_every": 200 * 10**6, "held_out_prompts": 0,  # measured at the end, not before
        }  # fmt: skip

        def report(row: TrainRow, kind: str = kind) -> None:
            say(f"{kind}: step {row.step}, loss {row.loss:.3f}")

        if kind == "causal LM":
            layers = tuple(map(int, options.layers.split(",")))
            train_causal_lm(CausalLMSpec(**settings, layers=layers), report)
        else:
            begin = {"recurrent_dir": Path(options.recurrent)}
            look_back = LookBackConfig(window=options.window)
            spec = LocalAttentionSpec(**settings, **begin, look_back=look_back)
            train_local_attention(spec, report)
    return {kind: str(path) for kind, path in out.items()}


def make_data(
    options: argparse.Namespace, folder: Path, device: str, work: Path, say: Callable[[str], None]
) -> Path:
    """Let the base model answer turns of its own, then tasks over documents of those answers."""
    parts = [work / "turns.safetensors", work / "documents.safetensors"]
    budget = options.seconds * SHARES["turns"]
    spec = GenerateSpec(
        folder,
        parts[0],
        prompts=options.turns,
        batch_size=8192 if device.startswith("cuda") else None,
        max_new_tokens=options.max_new_tokens,
        max_seconds=budget,
        device=device,
    )
    say(str(generate_answers(spec)))
    turns = AnswerRows.load(parts[0])
    prompts = tuple(training_documents(folder, turns, options))
    spec = GenerateSpec(
        folder,
        parts[1],
        given=prompts,
        max_new_tokens=options.max_new_tokens,
        sampled_share=0.0,
        batch_size=256 if device.startswith("cuda") else 4,
        max_seconds=options.seconds * SHARES["documents"],
        device=device,
    )
    try:
        say(str(generate_answers(spec)))
    except BadInput as error:  # a small model may repeat itself in every answer
        say(f"training without documents: {error}")
        return parts[0]
    joined = [pair for path in parts for pair in pairs_of(AnswerRows.load(path))]
    AnswerRows.join(joined).save(work / "answers.safetensors")
    return work / "answers.safetensors"


def pairs_of(rows: AnswerRows) -> Iterator[tuple[list[int], np.ndarray]]:
    for number in range(len(rows)):
        row = rows.tokens[rows.offsets[number] : rows.offsets[number + 1]].tolist()
        start = int(rows.prompt_tokens[number])
        yield row[:start], np.array(row[start:], dtype=np.int32)


def training_documents(
    folder: Path, turns: AnswerRows, options: argparse.Namespace
) -> Iterator[tuple[int, ...]]:
    """Documents of the model's own answers, 300 to 900 tokens, each with a task."""
    tokenizer, draw = HFTokenizer(folder), random.Random(0)
    answers = [answer for _, answer in pairs_of(turns)]
    some = draw.sample(answers, min(len(answers), options.training_documents))
    passages = [tokenizer.decode(answer.tolist()) for answer in some]
    for _ in range(options.training_documents):
        document = fill(tokenizer, lambda: draw.choice(passages), draw.randint(300, 900))
        yield render(tokenizer, document, draw.choice(list(TASKS.values())))


def test_prompts(folder: Path, options: argparse.Namespace) -> list[tuple[str, tuple[int, ...]]]:
    """Built-in prompts, and tasks over documents of the passages that some of them bring along."""
    tokenizer, draw = HFTokenizer(folder), random.Random(1)
    prompts = load_workload("builtin").prompts
    taken: dict[str, int] = defaultdict(int)
    found = []
    for prompt in prompts:
        taken[prompt.category] += 1
        if taken[prompt.category] <= options.prompts:
            ids = tuple(tokenizer.encode(tokenizer.render(prompt.messages)))
            found.append((prompt.category, ids))
    passages = [
        prompt.messages[0].content.split("\n\n", 1)[1]
        for prompt in prompts
        if prompt.category in ("summarization", "extraction")
        and "\n\n" in prompt.messages[0].content
    ]
    for task, instruction in TASKS.items():
        for length in map(int, options.lengths.split(",")):
            for _ in range(options.documents):
                order = iter(draw.sample(passages, len(passages)))
                document = fill(tokenizer, lambda order=order: next(order, ""), length)
                found.append((task, render(tokenizer, document, instruction)))
    return found


def fill(tokenizer: HFTokenizer, next_passage: Callable[[], str], length: int) -> str:
    """Join passages up to about `length` tokens, one at least."""
    parts: list[str] = []
    while length > 0 and (passage := next_passage()):
        length -= len(tokenizer.encode(passage)) + 1
        if length > 0 or not parts:
            parts.append(passage)
    return "\n\n".join(parts)


def render(tokenizer: HFTokenizer, document: str, instruction: str) -> tuple[int, ...]:
    message = Message("user", f"{document}\n\n{instruction}")
    return tuple(tokenizer.encode(tokenizer.render([message])))


def answer(
    base: Llama, prompts: list[tuple[str, tuple[int, ...]]], folder: Path, max_new_tokens: int
) -> list[Answered]:
    """Answer every prompt, those of similar length together."""
    how = Decoding(max_new_tokens, HFTokenizer(folder).stop_token_ids)
    ordered = sorted(prompts, key=lambda pair: len(pair[1]))
    found = []
    for start in range(0, len(ordered), 64):
        part = ordered[start : start + 64]
        for (category, prompt), out in zip(
            part, decode(base, [list(p) for _, p in part], how).tolist(), strict=True
        ):
            found.append((category, list(prompt), [token for token in out if token >= 0]))
    return found


def repeats(pair: Answered) -> bool:
    return len(pair[2]) < SHORT or repeats_itself(pair[2])


def acceptance(steps: Steps, rows: Sequence[int]) -> str:
    committed = steps.committed[torch.isin(steps.row, torch.tensor(rows, dtype=torch.long))]
    return f"{float(committed.sum()) / len(committed):.2f}" if len(committed) else "-"


def print_tables(
    pairs: list[Answered],
    cells: dict[tuple[str, tuple[int, int]], Steps],
) -> None:
    """Print acceptance lengths so far: without repeating answers, then with all."""
    groups: dict[str, list[int]] = defaultdict(list)
    for index, (category, prompt, _) in enumerate(pairs):
        bound = next(b for b in LENGTH_BOUNDS if len(prompt) <= b)
        for name in ("all", category, f"prompts up to {bound:4} tokens"):
            groups[name].append(index)
    heads = [f"{kind} {cell}" for kind, cell in cells]
    for title, wanted in (("without repeating answers", False), ("all answers", True)):
        print(f"\n{title}\n| prompts | n | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
        names = sorted(groups, key=lambda name: (name.startswith("prompts"), name != "all", name))
        for name in names:
            kept = [i for i in groups[name] if wanted or not repeats(pairs[i])]
            values = [acceptance(steps, kept) for steps in cells.values()]
            print(f"| {name} | {len(kept)} | {' | '.join(values)} |", flush=True)


if __name__ == "__main__":
    main()
