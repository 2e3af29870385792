#!/usr/bin/env python3
"""Ends the quickstart: shows five translations next to source and reference, scores and seconds; writes runs/quickstart/result.json."""

import json
import os
import shutil
import sys
import textwrap
from pathlib import Path

SHOWN = 5
STAGES = "setup configure build text count preprocess train soup export translate".split()


def result_of(log):
    """Figures of a tool: its last line `result {…}`."""
    for line in reversed(log.read_text("utf-8", errors="replace").splitlines()):
        if line.startswith("result {"):
            return json.loads(line.removeprefix("result "))
    raise SystemExit(f"quickstart: {log} has no line that begins with result, from which the report takes its figures; run scripts/quickstart --fresh")


def table(rows, titles, width):
    """Columns of equal width, cells wrapped, a rule between rows."""
    column = (width - 3 * (len(titles) - 1)) // len(titles)
    rule = "-+-".join("-" * column for _ in titles)
    lines = [" | ".join(title.ljust(column) for title in titles)]
    for row in rows:
        cells = [textwrap.wrap(cell, column) or [""] for cell in row]
        lines.append(rule)
        for i in range(max(map(len, cells))):
            lines.append(" | ".join((cell[i] if i < len(cell) else "").ljust(column) for cell in cells).rstrip())
    return "\n".join(lines)


def losses(soup):
    """One line that compares the soup with the last checkpoint."""
    last, mean = soup["losses"][-1]["loss"], soup["loss"]
    kept = f"the mean of {soup['inputs']} of the last {len(soup['losses'])}" if soup["inputs"] > 1 else "the best one, because no mean is better:"
    return f"validation loss: last checkpoint {last:.4f}, {kept} {mean:.4f}"


def read_lines(path):
    return path.read_text("utf-8").split("\n")[:-1]


def main(run):
    text = json.loads((run / "text/counts.json").read_text("utf-8"))
    source, target = text["languages"]
    figures = {tool: result_of(run / f"logs/{tool}.log") for tool in STAGES[4:]}
    result = {
        "bleu": figures["translate"]["bleu"],
        "chrf": figures["translate"]["chrf"],
        "validation_loss": {"last_checkpoint": figures["soup"]["losses"][-1]["loss"], "soup": figures["soup"]["loss"]},
        "seconds": {stage: float((run / f"stages/{stage}.spent").read_text()) for stage in STAGES},
        "text": {key: text[key] for key in ("text", "languages", "pairs", "train", "valid", "test")},
        "tools": figures,
    }
    partial = run / ".result.json.partial"
    partial.write_text(json.dumps(result, indent=2) + "\n", "utf-8")
    os.replace(partial, run / "result.json")

    columns = [read_lines(run / f"text/test.{source}"), read_lines(run / f"test.{target}"), read_lines(run / f"text/test.{target}")]
    if len(set(map(len, columns))) != 1:
        raise SystemExit(f"quickstart: the sources, translations and references differ in number ({', '.join(str(len(column)) for column in columns)}); run scripts/quickstart --fresh")
    width = min(max(shutil.get_terminal_size((120, 24)).columns, 80), 160)
    print(f"\nFive of {len(columns[0])} held-out sentences\n")
    print(table(list(zip(*columns))[:SHOWN], [f"source ({source})", f"Argosy ({target})", f"reference ({target})"], width))
    print(f"\nBLEU {result['bleu']:.1f}, chrF {result['chrf']:.1f} on {len(columns[0])} held-out sentences ({text['text']}, {source}-{target})")
    print(losses(figures["soup"]))
    spent = ", ".join(f"{stage} {seconds:.0f}" for stage, seconds in result["seconds"].items())
    print(f"seconds: {spent}")
    places = {
        "text": "training, validation and test parts",
        "tokenizer.model": "SentencePiece model",
        "shards": "token shards",
        "train": "checkpoints, metrics",
        "soup": "the averaged model",
        "ct2": "the same for CTranslate2",
        f"test.{target}": "translations of the test part",
        "logs": "messages of every stage",
        "report.html": "the curves of the training: open it in a browser",
        "result.json": "all figures",
    }
    print("\n" + "\n".join(f"{run / name!s:32} {what}" for name, what in places.items()))
    print(f'\nTranslate your own:  echo "Click the Insert button." | apps/translate {run}/soup')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
