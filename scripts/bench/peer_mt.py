#!/usr/bin/env python3
"""Does the quickstart with PyTorch: the same text, split, tokenizer and cores, as fast as PyTorch can on a CPU.

It trains a pre-norm Transformer (3+3 layers; 3.9 M parameters at the default width) for --seconds of wall clock, translates the test
part greedily and prints BLEU and chrF2 of sacreBLEU (13a). Start-up, tokenizing, a comparison of fp32 with bf16, validation and
decoding are not counted. Use nothing else on the machine. torch.compile is not used: after 105 s of compiling, a step
took 1.5 times as long as without it (fp32, AVX-512; the matrix products are two thirds of a step).

It needs torch, sentencepiece, sacrebleu and numpy; scripts/setup --peer makes an environment with them.
example: python scripts/bench/peer_mt.py --text runs/quickstart/text --tokenizer runs/quickstart/tokenizer.model --seconds 360 --json
"""

import argparse
import json
import math
import os
import random
import sys
import time
from pathlib import Path

# glibc hands large blocks back to the system after each step and page-faults them in again; keeping them doubles the speed.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 28)}
if __name__ == "__main__" and any(os.environ.get(name) != value for name, value in KEEP_MEMORY.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **KEEP_MEMORY})

import sacrebleu
import sentencepiece
import torch
import torch.nn.functional as F

SMOOTHING, POOL_PAIRS, VALIDATIONS = 0.1, 8192, 8
recipe = argparse.Namespace()  # the options


class FusedLoss(torch.autograd.Function):
    """Sum of the label-smoothed cross-entropy of `hidden @ table.T`; both gradients are made in the forward pass, in one buffer."""

    @staticmethod
    def forward(ctx, hidden, table, labels):
        rows, smooth = hidden.shape[0], SMOOTHING / table.shape[0]
        logits = (hidden @ table.t()).float()
        top = logits.max(1, keepdim=True).values
        at_label = logits.gather(1, labels[:, None])
        mean = logits.mean(1, keepdim=True)
        logits.sub_(top).exp_()
        total = logits.sum(1, keepdim=True)
        log_total = total.log() + top
        loss = (log_total - (1 - SMOOTHING) * at_label - SMOOTHING * mean).sum()
        logits.div_(total).sub_(smooth)
        logits[torch.arange(rows), labels] -= 1 - SMOOTHING
        gradient = logits.to(hidden.dtype)
        ctx.save_for_backward(gradient @ table, gradient.t() @ hidden)
        return loss

    @staticmethod
    def backward(ctx, scale):
        hidden_gradient, table_gradient = ctx.saved_tensors
        return hidden_gradient * scale, table_gradient * scale, None


def angles(length, size):
    return torch.arange(length)[:, None] * torch.exp(torch.arange(0, size, 2) * (-math.log(10000.0) / size))


def sinusoids(length):
    angle = angles(length, recipe.width)
    return torch.cat([angle.sin(), angle.cos()], 1)


def rotations(length):
    """Cosine and sine for both halves of a head."""
    angle = angles(length, recipe.width // recipe.heads).repeat(1, 2)
    return angle.cos(), angle.sin()


class Transformer:
    """Parameters are views of one flat buffer, so the norm, the clip and the optimizer are one operation each."""

    def __init__(self, vocabulary, pad, seed):
        torch.manual_seed(seed)
        self.vocabulary, self.pad = vocabulary, pad
        shapes = {"embedding": (vocabulary, recipe.width)}
        for stack, cross in (("encoder", False), ("decoder", True)):
            for layer in range(recipe.layers):
                block = {"qkv": 3 * recipe.width, "out": recipe.width, "up": 4 * recipe.width}
                if cross:
                    block |= {"cross_q": recipe.width, "cross_kv": 2 * recipe.width, "cross_out": recipe.width}
                for name, rows in block.items():
                    shapes |= {f"{stack}.{layer}.{name}": (rows, recipe.width), f"{stack}.{layer}.{name}.bias": (rows,)}
                shapes |= {f"{stack}.{layer}.down": (recipe.width, 4 * recipe.width), f"{stack}.{layer}.down.bias": (recipe.width,)}
                for norm in ("norm1", "norm2", "norm3")[: 3 if cross else 2]:
                    shapes |= {f"{stack}.{layer}.{norm}": (recipe.width,), f"{stack}.{layer}.{norm}.bias": (recipe.width,)}
            shapes |= {f"{stack}.norm": (recipe.width,), f"{stack}.norm.bias": (recipe.width,)}
        self.flat = torch.nn.Parameter(torch.zeros(sum(math.prod(shape) for shape in shapes.values())))
        self.flat.grad = torch.zeros_like(self.flat)
        self.p, begin = {}, 0
        for name, shape in shapes.items():
            end = begin + math.prod(shape)
            value = self.flat.data[begin:end].view(shape)
            if name == "embedding":
                value.normal_(0, recipe.width**-0.5)
            elif len(shape) == 2:
                torch.nn.init.xavier_uniform_(value)
            elif not name.endswith(".bias"):
                value.fill_(1)
            value.requires_grad_()
            value.grad = self.flat.grad[begin:end].view(shape)
            self.p[name], begin = value, end
        self.positions = rotations(1024) if recipe.position == "rope" else sinusoids(1024)
        self.training = True
        self.masks = torch.empty(1 << 24).bernoulli_(1 - recipe.dropout).div_(1 - recipe.dropout)

    def dropout(self, x):
        """A random window of a long row of kept and dropped entries: drawing fresh ones costs 15 % of a step."""
        if not self.training:
            return x
        begin = random.randrange(self.masks.numel() - x.numel())
        return x * self.masks[begin : begin + x.numel()].view_as(x).to(x.dtype)

    def linear(self, x, name):
        return F.linear(x, self.p[name], self.p[name + ".bias"])

    def norm(self, x, name):
        return F.layer_norm(x, (recipe.width,), self.p[name], self.p[name + ".bias"])

    @staticmethod
    def heads(x, parts):
        """[rows, length, parts·width] → parts tensors [rows·recipe.heads, length, head size]"""
        rows, length, _ = x.shape
        return x.view(rows, length, parts, recipe.heads, -1).permute(2, 0, 3, 1, 4).reshape(parts, rows * recipe.heads, length, -1).unbind(0)

    def attend(self, q, k, v, mask):
        """Plain products; mask: added to the scores, [rows, 1, queries or 1, keys] or None."""
        scores = torch.bmm(q * q.shape[-1] ** -0.5, k.transpose(1, 2))
        if mask is not None:
            rows = mask.shape[0]
            scores = (scores.view(rows, -1, *scores.shape[1:]) + mask).view_as(scores)
        mixed = torch.bmm(scores.softmax(-1), v)
        return mixed.view(-1, recipe.heads, *mixed.shape[1:]).transpose(1, 2).flatten(2)

    def embed(self, ids, position=0):
        x = F.embedding(ids, self.p["embedding"]) * recipe.width**0.5
        if recipe.position == "sinusoidal":
            x = x + self.positions[position : position + ids.shape[1]]
        return self.dropout(x)

    def rotate(self, x, position=0):
        """Queries or keys of self-attention, [rows·recipe.heads, length, head size]"""
        if recipe.position == "sinusoidal":
            return x
        cosine, sine = (table[position : position + x.shape[1]].to(x.dtype) for table in self.positions)
        low, high = x.chunk(2, -1)
        return x * cosine + torch.cat([-high, low], -1) * sine

    def feed(self, x, layer, norm):
        return x + self.dropout(self.linear(F.relu(self.linear(self.norm(x, f"{layer}.{norm}"), f"{layer}.up")), f"{layer}.down"))

    def encode(self, source):
        mask = torch.zeros(source.shape).masked_fill_(source == self.pad, -1e9)[:, None, None, :]
        x = self.embed(source)
        for layer in (f"encoder.{i}" for i in range(recipe.layers)):
            q, k, v = self.heads(self.linear(self.norm(x, f"{layer}.norm1"), f"{layer}.qkv"), 3)
            x = x + self.dropout(self.linear(self.attend(self.rotate(q), self.rotate(k), v, mask), f"{layer}.out"))
            x = self.feed(x, layer, "norm2")
        return self.norm(x, "encoder.norm"), mask

    def decode(self, x, memory_keys, memory_mask, causal, past=None, position=0):
        for i, layer in enumerate(f"decoder.{i}" for i in range(recipe.layers)):
            q, k, v = self.heads(self.linear(self.norm(x, f"{layer}.norm1"), f"{layer}.qkv"), 3)
            q, k = self.rotate(q, position), self.rotate(k, position)
            if past is not None:
                if past[i] is not None:
                    k, v = torch.cat([past[i][0], k], 1), torch.cat([past[i][1], v], 1)
                past[i] = k, v
            x = x + self.dropout(self.linear(self.attend(q, k, v, causal), f"{layer}.out"))
            (q,) = self.heads(self.linear(self.norm(x, f"{layer}.norm2"), f"{layer}.cross_q"), 1)
            x = x + self.dropout(self.linear(self.attend(q, *memory_keys[i], memory_mask), f"{layer}.cross_out"))
            x = self.feed(x, layer, "norm3")
        return self.norm(x, "decoder.norm")

    def memory_keys(self, memory):
        return [self.heads(self.linear(memory, f"decoder.{i}.cross_kv"), 2) for i in range(recipe.layers)]

    def hidden(self, source, target):
        memory, memory_mask = self.encode(source)
        causal = torch.full((1, 1, target.shape[1], target.shape[1]), -1e9).triu_(1)
        return self.decode(self.embed(target), self.memory_keys(memory), memory_mask, causal)

    @torch.no_grad()
    def greedy(self, source, eos):
        """One id list a row; at most twice the source length and ten more."""
        memory, mask = self.encode(source)
        keys, past = self.memory_keys(memory), [None] * recipe.layers
        last = torch.full((source.shape[0], 1), self.pad)
        done, out = torch.zeros(source.shape[0], dtype=torch.bool), []
        for position in range(min(2 * source.shape[1] + 10, 1000)):
            logits = self.decode(self.embed(last, position), keys, mask, None, past, position)[:, 0] @ self.p["embedding"].t()
            logits[:, self.pad] = -1e9
            last = logits.argmax(1, keepdim=True).masked_fill_(done[:, None], eos)
            out.append(last)
            done |= last[:, 0] == eos
            if done.all():
                break
        rows = torch.cat(out, 1).tolist()
        return [row[: row.index(eos)] if eos in row else row for row in rows]


def read_part(folder, part, languages):
    return [(folder / f"{part}.{language}").read_text("utf-8").splitlines() for language in languages]


def padded(rows, pad):
    out = torch.full((len(rows), max(map(len, rows))), pad)
    for i, row in enumerate(rows):
        out[i, : len(row)] = torch.tensor(row)
    return out


def batches(pairs, generator, pad):
    """Endless (source, decoder input, labels): pools of shuffled pairs sorted by length, cut at the tgt_tokens of a step, then shuffled."""
    while True:
        order = list(range(len(pairs)))
        generator.shuffle(order)
        for begin in range(0, len(order), POOL_PAIRS):
            pool = sorted((pairs[i] for i in order[begin : begin + POOL_PAIRS]), key=lambda pair: (len(pair[1]), len(pair[0])))
            cut, tgt_tokens = [[]], 0
            for pair in pool:
                if cut[-1] and tgt_tokens + len(pair[1]) / 2 > recipe.tgt_tokens:
                    cut.append([])
                    tgt_tokens = 0
                cut[-1].append(pair)
                tgt_tokens += len(pair[1])
            generator.shuffle(cut)
            for batch in cut:
                target = padded([[pad, *pair[1]] for pair in batch], pad)
                yield padded([pair[0] for pair in batch], pad), target[:, :-1], target[:, 1:]


class Trainer:
    def __init__(self, model, dtype):
        self.model, self.dtype = model, dtype
        self.optimizer = torch.optim.AdamW([model.flat], lr=0.0, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01, fused=True)

    def step(self, batch, lr):
        """Returns (summed smoothed loss, tgt_tokens)."""
        source, target, labels = batch
        live = labels != self.model.pad
        tgt_tokens = int(live.sum())
        self.model.flat.grad.zero_()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.dtype == "bf16"):
            hidden = self.model.hidden(source, target)
            table = self.model.p["embedding"]
            half = torch.bfloat16 if self.dtype == "bf16" else torch.float32
            loss = FusedLoss.apply(hidden[live].to(half), table.to(half), labels[live]) / tgt_tokens
        loss.backward()
        norm = self.model.flat.grad.norm()
        if norm > 1:
            self.model.flat.grad.mul_(1 / norm)
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        return float(loss.detach()) * tgt_tokens, tgt_tokens


def speed(model, dtype, pairs, seconds):
    """tgt_tokens/s of training steps that change no weight (learning rate 0)."""
    trainer = Trainer(model, dtype)
    stream = batches(pairs, random.Random(0), model.pad)
    for _ in range(5):
        trainer.step(next(stream), 0.0)
    begin, tgt_tokens = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        tgt_tokens += trainer.step(next(stream), 0.0)[1]
    return tgt_tokens / (time.perf_counter() - begin)


@torch.no_grad()
def validation_loss(model, pairs):
    """Nats a tgt_token, no smoothing, no dropout."""
    total, count = 0.0, 0
    for begin in range(0, len(pairs), 50):
        part = pairs[begin : begin + 50]
        target = padded([[model.pad, *pair[1]] for pair in part], model.pad)
        logits = model.hidden(padded([pair[0] for pair in part], model.pad), target[:, :-1]) @ model.p["embedding"].t()
        total += float(F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=model.pad, reduction="sum"))
        count += sum(len(pair[1]) for pair in part)
    return total / count


def learning_rate(warmed_up, left):
    """Linear to the peak; from there, by what is left of the time after the warm-up, to --min-lr."""
    if recipe.schedule == "cosine":
        left = (1 - math.cos(math.pi * left)) / 2
    return min(recipe.lr * warmed_up, recipe.min_lr + (recipe.lr - recipe.min_lr) * left)


class Metrics:
    """Lines as those of Argosy's metrics.jsonl."""

    def __init__(self, folder):
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
        self.file = open(folder / "metrics.jsonl", "w", encoding="utf-8") if folder else None

    def write(self, **line):
        if self.file:
            print(json.dumps(line), file=self.file, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, required=True, help="folder made by scripts/data/fetch_text")
    parser.add_argument("--tokenizer", type=Path, required=True, help="SentencePiece model of the quickstart")
    parser.add_argument("--seconds", type=float, default=360, help="training time (default %(default)s)")
    parser.add_argument("--width", type=int, default=192, help="width of the model; its feed-forward part is 4 times as wide (default %(default)s)")
    parser.add_argument("--layers", type=int, default=3, help="of each side (default %(default)s)")
    parser.add_argument("--heads", type=int, default=4, help="default %(default)s")
    parser.add_argument("--position", choices=("sinusoidal", "rope"), default="sinusoidal", help="of tokens (default %(default)s)")
    parser.add_argument("--dropout", type=float, default=0.1, help="default %(default)s")
    parser.add_argument("--tgt-tokens", type=int, default=1008, help="tgt_tokens of a step (default %(default)s)")
    parser.add_argument("--lr", type=float, default=1.5e-3, help="peak (default %(default)s)")
    parser.add_argument("--warmup", type=int, default=300, help="steps up to the peak (default %(default)s)")
    parser.add_argument("--min-lr", type=float, default=0.0, help="at the end (default %(default)s)")
    parser.add_argument("--schedule", choices=("linear", "cosine"), default="linear", help="from the peak to the end (default %(default)s)")
    parser.add_argument("--metrics", type=Path, metavar="FOLDER", help="write a metrics.jsonl there, for scripts/report")
    parser.add_argument("--dtype", choices=("auto", "fp32", "bf16"), default="auto", help="auto: the faster of both in a short trial")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    options = parser.parse_args(namespace=recipe)
    torch.set_num_threads(options.threads)
    random.seed(options.seed)

    languages = json.loads((options.text / "counts.json").read_text("utf-8"))["languages"]
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(options.tokenizer))
    eos = tokenizer.eos_id()
    pad = tokenizer.pad_id() if tokenizer.pad_id() >= 0 else tokenizer.get_piece_size()
    vocabulary = max(tokenizer.get_piece_size(), pad + 1)

    def encoded(part):
        sides = [tokenizer.encode(lines) for lines in read_part(options.text, part, languages)]
        return [(source + [eos], target + [eos]) for source, target in zip(*sides, strict=True)]

    train = [pair for pair in encoded("train") if max(map(len, pair)) <= 256]
    model = Transformer(vocabulary, pad, options.seed)
    dtype, speeds = options.dtype, {}
    if dtype == "auto":
        speeds = {name: speed(model, name, train, 6.0) for name in ("fp32", "bf16")}
        dtype = max(speeds, key=speeds.get)
        print(f"trial, tgt_tokens/s: {', '.join(f'{name} {value:.0f}' for name, value in speeds.items())}; {dtype} it is", flush=True)

    trainer, valid, metrics = Trainer(model, dtype), encoded("valid"), Metrics(options.metrics)
    stream = batches(train, random.Random(options.seed), pad)
    begin, told, left_at_peak, validated = time.perf_counter(), 0.0, 1.0, 0
    steps, all_tgt_tokens, window_loss, window_tgt_tokens = 0, 0, 0.0, 0
    while (elapsed := time.perf_counter() - begin) < options.seconds:
        left = 1 - elapsed / options.seconds
        if steps < recipe.warmup:
            left_at_peak = left
        lr = learning_rate((steps + 1) / recipe.warmup, left / left_at_peak)
        loss, tgt_tokens = trainer.step(next(stream), lr)
        steps, all_tgt_tokens = steps + 1, all_tgt_tokens + tgt_tokens
        window_loss, window_tgt_tokens = window_loss + loss, window_tgt_tokens + tgt_tokens
        if elapsed - told >= options.seconds / 48:
            print(f"{elapsed:.0f} s, step {steps}, loss {window_loss / window_tgt_tokens:.3f}, {all_tgt_tokens / elapsed:.0f} tgt_tokens/s", flush=True)
            metrics.write(step=steps, loss=window_loss / window_tgt_tokens, lr=lr, total_tgt_tokens=all_tgt_tokens, tgt_tokens_per_s=all_tgt_tokens / elapsed)
            told, window_loss, window_tgt_tokens = elapsed, 0.0, 0
        if elapsed * (VALIDATIONS + 1) / options.seconds > validated + 1:
            stopped = time.perf_counter()
            model.training, validated = False, validated + 1
            metrics.write(step=steps, validation="valid", figures={"loss": validation_loss(model, valid)})
            model.training = True
            begin += time.perf_counter() - stopped
    train_s = time.perf_counter() - begin

    model.training = False
    torch.set_num_threads(1)  # one row of one token a step: threads would only wait for each other
    sources, references = read_part(options.text, "test", languages)
    begin = time.perf_counter()
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    outputs = [""] * len(sources)
    for first in range(0, len(order), 50):
        rows = order[first : first + 50]
        ids = model.greedy(padded([tokenizer.encode(sources[i]) + [eos] for i in rows], pad), eos)
        for i, row in zip(rows, ids):
            outputs[i] = tokenizer.decode([piece for piece in row if piece < tokenizer.get_piece_size()])
    decode_s, valid_loss = time.perf_counter() - begin, validation_loss(model, valid)
    metrics.write(step=steps, validation="valid", figures={"loss": valid_loss})
    result = {
        "bleu": round(sacrebleu.corpus_bleu(outputs, [references]).score, 2),
        "chrf": round(sacrebleu.corpus_chrf(outputs, [references]).score, 2),
        "exact": round(sum(map(str.__eq__, outputs, references)) / len(references), 4),
        "valid_loss": round(valid_loss, 4),
        "dtype": dtype,
        "parameters": model.flat.numel(),
        "threads": options.threads,
        "seed": options.seed,
        "steps": steps,
        "tgt_tokens_per_step": round(all_tgt_tokens / steps, 1),
        "tgt_tokens_per_s": round(all_tgt_tokens / train_s, 1),
        "epochs": round(all_tgt_tokens / sum(len(target) for _, target in train), 3),
        "train_s": round(train_s, 2),
        "decode_s": round(decode_s, 2),
        "torch": torch.__version__,
    }
    for i in range(3):
        print(f"source:    {sources[i]}\nreference: {references[i]}\npeer:      {outputs[i]}")
    print(f"peer: BLEU {result['bleu']}, chrF2 {result['chrf']} after {steps} steps in {train_s:.0f} s")
    if options.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
