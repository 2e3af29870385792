#!/usr/bin/env python3
"""Tables of scripts/bench/wire, then one line of JSON; code 1 when a sum by levels exceeds its bound.

usage: report.py RESULTS --rate none|RATE   RESULTS: lines `LAYOUT result {…}`, as tests/bench/wire prints them
"""

import argparse
import json
import math
import re
import statistics
import sys

BY_LEVELS = ("exact", "fast")
WIRE_LIMIT = 1.05  # headers of TCP and IP come on top of payload
UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


def bytes_per_s(rate):
    number, unit = re.fullmatch(r"(\d+)([kmg]?)bit", rate).groups()
    return int(number) * UNITS[unit] / 8


def numbers(values):
    return "  ".join(f"{value:.3f}" for value in values)


def holds_bound(figures, bound):
    """Every node counts exactly the bound, and sends that (by shared memory it would send nothing) and little more."""
    exact = all(math.isclose(counted, bound, rel_tol=1e-9) for counted in figures["counted"])
    return exact and all(1 <= wire / bound <= WIRE_LIMIT for wire in figures["wire"])


def bytes_of(method, bound):
    wire = [max(node) for node in zip(*method["wire"], strict=True)]  # of the worst round
    figures = {"wire": wire, "wire_over_bound": max(wire) / bound}
    if "counted" in method:
        figures |= {"counted": method["counted"], "counted_over_bound": max(method["counted"]) / bound}
    return figures


def print_bytes(name, figures):
    counted = f"   counted {numbers(figures['counted'])}" if "counted" in figures else ""
    print(f"  {name:<14}{numbers(figures['wire'])}   {figures['wire_over_bound']:.3f} x bound{counted}")


def print_times(name, times, exact):
    spread = f"({times['least_s']:.3f} to {times['most_s']:.3f})"
    beside = "" if name == "exact" else f"   {times['median_s'] / exact['median_s']:.2f} x exact"
    print(f"  {name:<14}{times['median_s']:.3f} s {spread}   {times['over_bound']:.2f} x bound{beside}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--rate", required=True)
    options = parser.parse_args()
    with open(options.results, encoding="utf-8") as file:
        runs = [line.split(" result ", 1) for line in file]
    cells, ok = [], True
    for layout, line in runs:
        run = json.loads(line)
        nodes, size_bytes = len(run["nodes"]), run["buffer_bytes"]
        bound = 2 * (nodes - 1) / nodes
        cell = {"layout": layout, "buffer_bytes": size_bytes, "bound": bound, "methods": {}}
        cells.append(cell)
        for name, method in run["methods"].items():
            cell["methods"][name] = bytes_of(method, bound)
        ours = [cell["methods"][name] for name in BY_LEVELS]
        cell["ok"] = all(holds_bound(figures, bound) for figures in ours)
        ok = ok and cell["ok"]
        if options.rate == "none":
            print(f"{layout}: {size_bytes / 1e6:.1f} MB; bytes out of each node over that, bound {bound:.3f}")
            for name, figures in cell["methods"].items():
                print_bytes(name, figures)
            continue
        bound_s = bound * size_bytes / bytes_per_s(options.rate)
        cell["bound_s"] = bound_s
        print(f"{layout}: {size_bytes / 1e6:.1f} MB at {options.rate} a node; seconds, bound {bound_s:.3f}")
        for name, method in run["methods"].items():
            seconds = method["seconds"]
            median = statistics.median(seconds)
            times = {"median_s": median, "least_s": min(seconds), "most_s": max(seconds), "over_bound": median / bound_s}
            cell["methods"][name] |= times
            print_times(name, times, cell["methods"]["exact"])
    print(json.dumps({"tool": "wire", "status": "ok" if ok else "over the bound", "rate": options.rate, "cells": cells}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
