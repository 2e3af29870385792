"""The two models of scripts/bench/train, a batch for each, and Argosy's runs with them. Configuration, tokenizer, text and ids are made
here, so that Argosy and a peer train on the same."""

import json
import math
import random
import shutil
import statistics
from pathlib import Path
from typing import Any

import turns
from turns import Row

# Numbers of both sides. The schedule is constant; weight decay is for matrices only.
OPTIMIZER = {"type": "adamw", "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "max_grad_norm": 1.0}
LEARNING_RATE = 5e-5  # the loss stays far from 0, where relative differences would say little

MODELS: dict[str, dict[str, Any]] = {
    "llama": {
        "model": {"type": "decoder", "vocab_size": 8192, "width": 288, "ff": 768, "heads": 6, "decoder": {"layers": 6},
                  "tie_embeddings": False, "dropout": 0},
        "rows": 8, "source": 0, "target": 256},
    "marian": {
        "model": {"type": "encoder_decoder", "vocab_size": 8000, "width": 256, "ff": 1024, "heads": 8, "activation": "swish",
                  "encoder": {"layers": 4}, "decoder": {"layers": 4}, "tie_embeddings": True, "dropout": 0},
        "rows": 64, "source": 32, "target": 32},
}


def field(number: int, payload: bytes | int) -> bytes:
    """One field of a protobuf message: a number as a varint, else bytes."""

    def varint(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def special_pieces(is_lm: bool) -> list[tuple[str, int]]:
    """Pieces without text, by id, and their types in SentencePiece's terms."""
    unknown, control = 2, 3
    return [("<unk>", unknown), ("<s>", control), ("</s>", control)] if is_lm else [("</s>", control), ("<unk>", unknown)]


def word(number: int) -> str:
    return f"w{number:05d}"


def tokenizer(pieces: int, is_lm: bool) -> bytes:
    """A SentencePiece model (unigram) that has one piece for each word."""
    special = special_pieces(is_lm)
    message = b"".join(field(1, field(1, name.encode()) + field(3, kind)) for name, kind in special)
    for number in range(pieces - len(special)):
        message += field(1, field(1, ("\u2581" + word(number)).encode()))
    return message + field(2, field(3, 1)) + field(3, field(1, b"identity"))


def is_lm(workload: dict[str, Any]) -> bool:
    return workload["model"]["type"] == "decoder"


def padded_tokens(workload: dict[str, Any]) -> int:
    """Of a step. No position is padding."""
    return workload["rows"] * (workload["source"] + workload["target"])


def prepare(workload: dict[str, Any], folder: Path, seed: int = 1) -> dict[str, Any]:
    """Writes tokenizer.model, the text of exactly one batch, and config.json; the batch's ids as the model gets them."""
    model, lm = workload["model"], is_lm(workload)
    specials = special_pieces(lm)
    draw = random.Random(seed)
    end = [name for name, _ in specials].index("</s>")
    # Marian's start is the last row of an embedding that is padded to a multiple of 64.
    start = 1 if lm else model["vocab_size"] // 64 * 64 + 63

    def sentences(length: int) -> list[list[int]]:
        return [[draw.randrange(model["vocab_size"] - len(specials)) for _ in range(length - 1)] for _ in range(workload["rows"])]

    def ids(lines: list[list[int]]) -> list[list[int]]:
        return [[number + len(specials) for number in line] + [end] for line in lines]

    def write(name: str, lines: list[list[int]]) -> str:
        path = folder / name
        path.write_text("".join(" ".join(map(word, line)) + "\n" for line in lines), "utf-8")
        return str(path)

    target = sentences(workload["target"])
    source = sentences(workload["source"]) if not lm else []
    (folder / "tokenizer.model").write_bytes(tokenizer(model["vocab_size"], lm))
    corpus = {"name": "words", "languages": ["en"], "source": write("text.en", target)} if lm else {
        "name": "words", "languages": ["en", "fr"], "source": write("text.en", source), "target": write("text.fr", target)}
    config = {
        "run_dir": str(folder / "run"), "device": "cpu",
        "data": {"tokenizer": str(folder / "tokenizer.model"), "shards": str(folder / "shards"), "corpora": [corpus]},
        "model": model, "loss": {"label_smoothing": 0}, "optimizer": OPTIMIZER,
        "schedule": {"style": "constant", "lr": LEARNING_RATE, "warmup": 1, "length": 1},
        "batch": {"unit": "examples", "global_size": workload["rows"], "micro_size": workload["rows"], "pool": workload["rows"]}
        | ({"sequence_length": workload["target"], "packing": False} if lm else {}),
        "checkpoint": {"interval": 1000000000, "export_state": "weights"}, "telemetry": {"log_interval": 1}}
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    labels = ids(target)
    return {"source": ids(source), "target": [[start, *row[:-1]] for row in labels], "labels": labels, "start": start}


class Argosy:
    """Argosy's side: a folder with configuration and data, named after the model."""

    def __init__(self, work: dict[str, Any], build: Path, folder: Path, with_data: bool = True) -> None:
        self.name, self.build, self.folder, self.work = folder.name, build, folder, work
        self.config = folder / "config.json"
        folder.mkdir()
        self.batch = prepare(work, folder)
        if with_data:
            turns.launch(1, 1, [build / "apps/preprocess", self.config])

    def train(self, precision: str, ranks: int, threads: int, steps: int, learning_rate: float = LEARNING_RATE) -> tuple[list[Row], Row]:
        """Trains from scratch; the line of metrics.jsonl of each step, and figures of memory of all ranks."""
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        settings = {"precision.mode": precision, "batch.micro_size": self.work["rows"] // ranks, "schedule.length": steps, "schedule.lr": learning_rate}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        (result,), peak_mib = turns.launch(ranks, threads, [self.build / "apps/train", self.config, *words])
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text("utf-8").splitlines()]
        copy_bytes = result["memory"]["checkpoint_copy_bytes"] if "memory" in result else 0  # absent after a single step
        return [line for line in lines if "step_ms" in line], {"peak_rss_mib": peak_mib, "checkpoint_copy_mib": ranks * copy_bytes / (1 << 20)}

    def initial_weights(self) -> tuple[Path, int]:
        """model.h5 of a checkpoint after one step with a learning rate that changes no weight, and the number of parameters."""
        self.train("fp32", 1, 1, 1, learning_rate=1e-30)
        kept = self.folder / "initial"
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(next((self.folder / "run/export").iterdir()), kept)
        parameters = json.loads((kept / "MANIFEST.json").read_text("utf-8"))["params"]
        return kept / "model.h5", sum(math.prod(parameter["shape"]) for parameter in parameters)

    def floor(self, precision: str, ranks: int, threads: int, steps: int) -> Row:
        """Figures of tests/bench/micro_step, the medians over ranks that run at once."""
        config = json.loads(self.config.read_text("utf-8")) | {"precision": {"mode": precision}}
        path = self.folder / "floor.json"
        path.write_text(json.dumps(config), "utf-8")
        command = [self.build / "tests/bench/micro_step", path, self.work["rows"] // ranks, self.work["source"], self.work["target"], steps, threads]
        results, _ = turns.launch(ranks, threads, command)
        return {key: statistics.median(result[key] for result in results) for key in ("micro_step_ms", "floor_ms", "gflop")}
