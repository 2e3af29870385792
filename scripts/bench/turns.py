"""What the benchmarks against other programs share: the same cores for both sides, ranks whose memory is measured, medians over turns."""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]

# glibc hands large blocks back to the system after each step and page-faults them in again. Argosy keeps them by itself.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(1 << 28)}

# Runs a program and writes the peak of its resident memory, in KiB, to a file of its own in the folder argv[1]. Of pages that it shares,
# mostly with the other ranks, its part is counted; the kernel tells that part while the program runs.
MEASURED = """
import os, re, resource, subprocess, sys
child = subprocess.Popen(sys.argv[2:], close_fds=False)  # MPI has a file open
others_kib = 0
while True:
    try:
        code = child.wait(timeout=1)
        break
    except subprocess.TimeoutExpired:
        try:
            with open(f"/proc/{child.pid}/smaps_rollup") as file:
                kib = dict(re.findall(r"^(Rss|Pss): +([0-9]+)", file.read(), re.MULTILINE))
            others_kib = max(others_kib, int(kib["Rss"]) - int(kib["Pss"]))
        except (OSError, KeyError):
            pass  # it is ending
with open(os.path.join(sys.argv[1], str(os.getpid())), "w") as file:
    file.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss - others_kib))
sys.exit(code)
"""


class Peer:
    """A process of another program, which waits between its turns: it reads one JSON object a line, and writes one."""

    def __init__(self, command: Sequence[object], log: Path, cores: int) -> None:
        self.log = log
        environment = {**os.environ, **KEEP_MEMORY, "OMP_NUM_THREADS": str(cores), "TORCHINDUCTOR_CACHE_DIR": str(log.parent / "compiled")}
        with log.open("w") as stderr:
            self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
        self.about = self._answer()

    def _answer(self) -> Row:
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            self.end()
            sys.exit("\n".join(self.log.read_text("utf-8").splitlines()[-20:]) + "\nthe peer failed; its last lines are above")
        return json.loads(line)

    def ask(self, **request: object) -> Row:
        print(json.dumps(request), file=self.process.stdin, flush=True)
        return self._answer()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def variants_of(cores: int) -> list[tuple[int, int]]:
    """Ranks and threads of each: as many ranks as cores, or as many threads."""
    return [(cores, 1), (1, cores)] if cores > 1 else [(1, 1)]


def name_of(ranks: int, threads: int, rank: str = "rank") -> str:
    return f"{ranks} {rank}{'s' * (ranks > 1)} x {threads} thread{'s' * (threads > 1)}"


def begin(count: int) -> list[int]:
    """Limits this process, and those that it starts, to `count` processors; which ones. SIGTERM then ends it in order, so that
    temporary folders are removed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < count:
        sys.exit(f"--cores {count}: this process may use {len(usable)} processors")
    os.sched_setaffinity(0, usable[:count])
    return usable[:count]


def build(folder: Path, targets: Sequence[str]) -> None:
    if not (folder / "build.ninja").exists():
        sys.exit(f"{folder} is not a build tree; run `cmake --preset release`, or give --build")
    done = subprocess.run(["ninja", "-C", str(folder), *targets], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit("\n".join(done.stdout.splitlines()[-20:]) + f"\n{folder} could not be built; the compiler's last lines are above")


def on_ranks(ranks: int, threads: int) -> tuple[list[str], dict[str, str]]:
    """The words before a program that start it on ranks of this machine, and its environment."""
    launcher = subprocess.check_output(ROOT / "scripts/launcher", text=True).split()
    return [*launcher, "-n", str(ranks)], {**os.environ, "OMP_NUM_THREADS": str(threads), "UCX_TLS": "self,sm", "UCX_LOG_LEVEL": "error"}


def launch(ranks: int, threads: int, command: Sequence[object]) -> tuple[list[Row], float]:
    """Runs a program on ranks; the result line of each rank that prints one, and the peak memory of all ranks in MiB, shared pages counted once."""
    starter, environment = on_ranks(ranks, threads)
    with tempfile.TemporaryDirectory(prefix="argosy-bench-") as folder:
        words = [*starter, sys.executable, "-c", MEASURED, folder, *map(str, command)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        peaks_kib = [int(file.read_text()) for file in Path(folder).iterdir()]
    results = [json.loads(text) for text in re.findall(r"^result (\{.*\})$", done.stdout, re.MULTILINE)]
    if done.returncode or not results or any(result.get("status", "ok") != "ok" for result in results):
        sys.exit("\n".join(done.stdout.splitlines()[-20:]) + f"\n{' '.join(map(str, command))} failed; its last lines are above")
    return results, sum(peaks_kib) / 1024


def peer_python(given: str | None, module: str, advice: str) -> str | None:
    """The Python that can import the peer's module; None, and a sentence about it, if that of scripts/setup cannot."""
    default = Path(os.environ.get("ARGOSY_DEPS", Path.home() / ".cache/argosy")) / "judges/bin/python"
    python = given or str(default)
    try:
        found = subprocess.run([python, "-c", f"import {module}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        found = False
    if not found and given:
        sys.exit(f"--peer {given}: this Python cannot import {module}")
    if not found:
        print(f"no peer: {python} cannot import {module}; {advice}. Only Argosy is measured.", flush=True)
    return python if found else None


def speed(turns: Sequence[Sequence[float]], work: float) -> Row:
    """Figures of measured milliseconds, by turn: the median of all, work per second at it, and that of the slowest and fastest turn."""
    median_ms = statistics.median(ms for turn in turns for ms in turn)
    medians = [statistics.median(turn) for turn in turns]
    per_s = {"median": work / median_ms * 1e3, "low": work / max(medians) * 1e3, "high": work / min(medians) * 1e3}
    return {"ms": round(median_ms, 2), **{name: round(value, 1) for name, value in per_s.items()}}


def add_ratios(rows: Sequence[Row], figure: str, group: Sequence[str]) -> None:
    """Gives each row of Argosy `ratio_to_best_peer`: its figure over the best one of a peer in the same group; None without a peer.
    `rss_ratio_to_best_peer` is the ratio of memory to the same peer; `rss_ratio_without_copy` leaves out the copy of the state that
    checkpoints are written from, which a peer that saves nothing does not have."""
    for row in rows:
        if row["side"] != "argosy" or row.get(figure) is None:
            continue
        peers = [other for other in rows if other["side"] != "argosy" and all(other[key] == row[key] for key in group)]
        best = max(peers, key=lambda other: other[figure], default=None)
        row["ratio_to_best_peer"] = round(row[figure] / best[figure], 3) if best else None
        if "peak_rss_mib" in row:
            row["rss_ratio_to_best_peer"] = round(row["peak_rss_mib"] / best["peak_rss_mib"], 3) if best else None
            row["rss_ratio_without_copy"] = round((row["peak_rss_mib"] - row["checkpoint_copy_mib"]) / best["peak_rss_mib"], 3) if best else None


def print_table(rows: Sequence[Row], columns: Sequence[tuple[str, str, str]]) -> None:
    """columns: title, key and format of each; the cell of a missing figure is a dash."""
    cells = [[title for title, _, _ in columns]]
    cells += [["-" if row.get(key) is None else format(row[key], style) for _, key, style in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    is_text = [any(isinstance(row.get(key), str) for row in rows) for _, key, _ in columns]
    for line in cells:
        print("  ".join(f"{cell:<{width}}" if text else f"{cell:>{width}}" for cell, width, text in zip(line, widths, is_text, strict=True)).rstrip())


def about(cores: Sequence[int]) -> Row:
    """Where and when the figures were measured."""
    model = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    revision = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    return {"cpu": model[1] if model else "unknown", "cores": list(cores), "revision": revision or "unknown",
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def check_common(parser: argparse.ArgumentParser, options: argparse.Namespace, counts: Sequence[str]) -> None:
    """Refuses options that both scripts refuse."""
    for name in counts:
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if not options.out.parent.is_dir():
        parser.error(f"--out {options.out}: there is no folder {options.out.parent}")


def write_json(path: Path, value: Row) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", "utf-8")
