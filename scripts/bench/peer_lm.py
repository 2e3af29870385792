#!/usr/bin/env python3
"""Trains a language model of the Llama shape with PyTorch on a CPU, for scripts/bench/quality: the same text, tokenizer and cores.

It trains for --seconds of wall clock, and prints the bits per byte of the test part. Start-up, tokenizing, compiling, a comparison of
fp32 with bf16, and validation are not counted. The text is one stream of tokens; each row of a step is a random stretch of it.

It needs torch, sentencepiece and h5py; scripts/setup --peer makes an environment with them.
example: python scripts/bench/peer_lm.py --text runs/kjv/text --tokenizer runs/kjv/tokenizer.model --seconds 480 --json
"""

import argparse
import json
import math
import os
import random
import sys
import time
from pathlib import Path

from peer_mt import KEEP_MEMORY, VALIDATIONS, Metrics  # of the same folder

if __name__ == "__main__" and any(os.environ.get(name) != value for name, value in KEEP_MEMORY.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})

import sentencepiece
import torch
from peer_train import Model


def initial_weights(options, vocabulary):
    """Normal weights of deviation 0.02, those into the residual stream less by the square root of their number; norms of 1."""
    draw = torch.Generator().manual_seed(options.seed)
    width, ff = options.width, options.ff

    def normal(*shape, scale=1.0):
        return torch.randn(shape, generator=draw) * 0.02 * scale

    into_stream = (2 * options.layers) ** -0.5
    weights = {"decoder/embeddings/weight": normal(vocabulary, width), "decoder/projection/weight": normal(vocabulary, width),
               "decoder/layer_norm/gamma": torch.ones(width)}
    for layer in (f"decoder/layer_{i}" for i in range(options.layers)):
        weights |= {f"{layer}/self_attention/layer_norm/gamma": torch.ones(width), f"{layer}/ffn/layer_norm/gamma": torch.ones(width),
                    f"{layer}/self_attention/linear_0/weight": normal(3 * width, width),
                    f"{layer}/self_attention/linear_1/weight": normal(width, width, scale=into_stream),
                    f"{layer}/ffn/linear_0/weight": normal(2 * ff, width), f"{layer}/ffn/linear_1/weight": normal(width, ff, scale=into_stream)}
    return weights


class Trainer:
    def __init__(self, options, vocabulary, dtype):
        self.options, self.dtype = options, dtype
        sizes = {"heads": options.heads, "width": options.width, "type": "decoder", "decoder": {"layers": options.layers}}
        self.model = Model(sizes, initial_weights(options, vocabulary), options.length, options.dropout)
        self.loss = torch.compile(self.model)
        self.parameters = dict(self.model.p.items())
        hidden = {name for name, p in self.parameters.items() if options.optimizer == "muon" and "/layer_" in name and p.ndim > 1}
        # Muon takes q, k, v, gate and up apart: views of what the model stacks.
        self.parts = {name: [torch.nn.Parameter(part) for part in self.parts_of(name, self.parameters[name].detach())] for name in hidden}
        matrices, vectors = ([p for name, p in self.parameters.items() if name not in hidden and (p.ndim > 1) == wanted] for wanted in (True, False))
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizers = [torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95), eps=1e-8, fused=True)]
        if hidden:
            parts = [part for of_name in self.parts.values() for part in of_name]
            self.optimizers.append(torch.optim.Muon(parts, lr=0.0, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"))
        self.means, self.updates = [p.detach().clone() for p in self.parameters.values()] if options.ema else [], 0

    @staticmethod
    def parts_of(name, stacked):
        return stacked.chunk(3 if "self_attention/linear_0" in name else 2 if "ffn/linear_0" in name else 1)

    def forget(self):
        """What optimizers have seen in a trial that changed no weight."""
        for optimizer in self.optimizers:
            optimizer.state.clear()
        self.updates = 0

    def mean_loss(self, rows):
        """rows: [rows, length + 1]"""
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == "bf16"):
            return self.loss(None, rows[:, :-1].contiguous(), rows[:, 1:].contiguous(), 0)

    def step(self, rows, lr):
        loss = self.mean_loss(rows)
        self.model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for name, parts in self.parts.items():
            for part, gradient in zip(parts, self.parts_of(name, self.parameters[name].grad)):
                part.grad = gradient
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = lr
            optimizer.step()
        self.updates += 1
        if self.means:
            decay = min(self.options.ema, (self.updates + 1) / (self.updates + 10))
            torch._foreach_lerp_(self.means, [p.detach() for p in self.parameters.values()], 1 - decay)
        return float(loss.detach())

    @torch.no_grad()
    def swap_means(self):
        """Exchanges weights and their running means, if there are means. The weights keep their places, of which `parts` are views."""
        for mean, parameter in zip(self.means, self.parameters.values()):
            weights = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(weights)

    def rows_of(self, stream, begins):
        return torch.stack([stream[begin : begin + self.options.length + 1] for begin in begins])

    @torch.no_grad()
    def bits_per_byte(self, stream, size_bytes):
        """Of a text in stretches of the training's length; a stretch sees nothing of the one before. By the means, if there are any."""
        self.swap_means()
        self.model.eval()
        total, last = 0.0, stream.numel() - self.options.length - 1
        begins = list(range(0, last + 1, self.options.length))
        whole = len(begins) // self.options.rows * self.options.rows  # as many rows as are compiled for; the rest by the mean
        for first in range(0, whole, self.options.rows):
            total += float(self.mean_loss(self.rows_of(stream, begins[first : first + self.options.rows])))
        self.model.train()
        self.swap_means()
        nats = total / (whole // self.options.rows)
        return nats, nats * stream.numel() / math.log(2) / size_bytes


def tokens_per_s(trainer, stream, seconds):
    """Of steps that change no weight (learning rate 0)."""
    rows = trainer.rows_of(stream, range(trainer.options.rows))
    for _ in range(3):
        trainer.step(rows, 0.0)
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        trainer.step(rows, 0.0)
        steps += 1
    return steps * trainer.options.rows * trainer.options.length / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder made by scripts/data/fetch_text --text kjv")
    parser.add_argument("--tokenizer", type=Path, required=True, help="SentencePiece model")
    parser.add_argument("--seconds", type=float, default=480, help="training time (default %(default)s)")
    for name, value, what in (("width", 256, "of the model"), ("ff", 688, "width of the feed-forward part"), ("layers", 6, ""), ("heads", 8, ""),
                              ("length", 256, "tokens of a row"), ("rows", 16, "of a step"), ("warmup", 100, "steps up to the peak")):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} (default {value})".strip())
    parser.add_argument("--lr", type=float, default=1e-3, help="peak (default %(default)s)")
    parser.add_argument("--min-lr", type=float, default=1e-4, help="at the end of a cosine (default %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.0, help="on residual branches and embeddings (default %(default)s)")
    parser.add_argument("--optimizer", choices=("adamw", "muon"), default="adamw", help="muon: of the matrices in blocks, and adamw of the rest (default %(default)s)")
    parser.add_argument("--ema", type=float, default=0.0, help="decay of a running mean of the weights, which is then what is evaluated; 0: none (default)")
    parser.add_argument("--metrics", type=Path, metavar="FOLDER", help="write a metrics.jsonl there, for scripts/report")
    parser.add_argument("--dtype", choices=("auto", "fp32", "bf16"), default="auto", help="auto: the faster of both in a short trial")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(options.tokenizer))
    texts = {part: (options.text / f"{part}.en").read_text("utf-8") for part in ("train", "valid", "test")}
    streams = {part: torch.tensor(tokenizer.encode(text)) for part, text in texts.items()}

    trainers = {dtype: Trainer(options, tokenizer.get_piece_size(), dtype) for dtype in (("fp32", "bf16") if options.dtype == "auto" else (options.dtype,))}
    speeds = {dtype: tokens_per_s(trainer, streams["train"], 5.0) for dtype, trainer in trainers.items()}
    dtype = max(speeds, key=speeds.get)
    print(f"trial, tokens/s: {', '.join(f'{name} {value:.0f}' for name, value in speeds.items())}; {dtype} it is", flush=True)
    trainer, metrics, draw = trainers[dtype], Metrics(options.metrics), random.Random(options.seed)
    trainer.forget()

    def validation():
        return trainer.bits_per_byte(streams["valid"], len(texts["valid"].encode()))[0]

    validation()  # compiles it
    begin, told, left_at_peak, validated, steps = time.perf_counter(), 0.0, 1.0, 0, 0
    window, last = [], streams["train"].numel() - options.length - 1
    tokens = options.rows * options.length
    while (elapsed := time.perf_counter() - begin) < options.seconds:
        left = 1 - elapsed / options.seconds
        if steps < options.warmup:
            left_at_peak = left
        cosine = (1 - math.cos(math.pi * left / left_at_peak)) / 2
        lr = min(options.lr * (steps + 1) / options.warmup, options.min_lr + (options.lr - options.min_lr) * cosine)
        window.append(trainer.step(trainer.rows_of(streams["train"], [draw.randint(0, last) for _ in range(options.rows)]), lr))
        steps += 1
        if elapsed - told >= options.seconds / 48:
            print(f"{elapsed:.0f} s, step {steps}, loss {sum(window) / len(window):.3f}, {steps * tokens / elapsed:.0f} tokens/s", flush=True)
            metrics.write(step=steps, loss=sum(window) / len(window), nll=sum(window) / len(window), lr=lr, total_tgt_tokens=steps * tokens, tgt_tokens_per_s=steps * tokens / elapsed)
            told, window = elapsed, []
        if elapsed * (VALIDATIONS + 1) / options.seconds > validated + 1:
            stopped, validated = time.perf_counter(), validated + 1
            metrics.write(step=steps, validation="valid", figures={"loss": validation()})
            begin += time.perf_counter() - stopped
    train_s = time.perf_counter() - begin
    valid_loss = validation()
    metrics.write(step=steps, validation="valid", figures={"loss": valid_loss})
    test_loss, bits = trainer.bits_per_byte(streams["test"], len(texts["test"].encode()))
    result = {"bits_per_byte": round(bits, 4), "test_loss": round(test_loss, 4), "valid_loss": round(valid_loss, 4), "dtype": dtype,
              "parameters": sum(p.numel() for p in trainer.model.parameters()), "threads": options.threads, "seed": options.seed, "steps": steps,
              "tgt_tokens_per_s": round(steps * tokens / train_s, 1), "epochs": round(steps * tokens / streams["train"].numel(), 3),
              "train_s": round(train_s, 2), "torch": torch.__version__}
    print(f"peer: {result['bits_per_byte']} bits per byte after {steps} steps in {train_s:.0f} s")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
