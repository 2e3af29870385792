#!/usr/bin/env python3
"""Writes the units clang-tidy reads, and their compile_commands.json, into BUILD/tidy; prints their paths.

usage: tidy_units.py BUILD [REVISION]   run from the root; with REVISION, prints only the units of what changed since

A unit includes all sources of a folder in lib/, or one of apps/, that share their flags and reach no LibTorch header: nearly
all time goes to the headers, so one unit for ten sources takes a tenth. Names must be unique in a folder, in unnamed
namespaces too.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys

import rules


def changed_since(revision):
    """Sources that differ from a revision, and folders of headers that do."""
    lines = []
    for command in (["diff", "--name-only", revision], ["ls-files", "--others", "--exclude-standard"]):
        lines += subprocess.run(["git", *command], check=True, capture_output=True, text=True).stdout.splitlines()
    return {str(pathlib.Path(line).parent) if line.endswith(".hpp") else line for line in lines}


def sources_of(path):
    """A source, or those that a source of a unity build includes."""
    if path.parent.name != "Unity":
        return [path]
    return [pathlib.Path(name) for name in re.findall(r'#include "([^"]+)"', path.read_text())]


root = pathlib.Path.cwd()
build = (root / sys.argv[1]).resolve()
changed = changed_since(sys.argv[2]) if len(sys.argv) > 2 else None
lint = rules.Lint(root)
groups = collections.defaultdict(list)
for entry in json.loads((build / "compile_commands.json").read_text()):
    flags = entry["command"].split(" -o ")[0]
    for path in sources_of(pathlib.Path(entry["file"])):
        name = str(path.relative_to(root)) if path.is_relative_to(root) else ""
        if re.match(r"(lib|apps)/.*\.cpp$", name) and not lint.reaches_torch(name):
            groups[name if name.startswith("apps/") else str(path.relative_to(root).parent), flags].append(name)

folder = build / "tidy"
folder.mkdir(exist_ok=True)
commands = []
for number, ((place, flags), names) in enumerate(sorted(groups.items())):
    unit = folder / f"{number}-{place.removesuffix('.cpp').replace('/', '-')}.cpp"
    unit.write_text("".join(f'#include "{root / name}"  // NOLINT\n' for name in names))
    commands.append({"directory": str(build), "file": str(unit), "command": f"{flags} -c {unit}"})
    if changed is None or changed & {*names, str(pathlib.Path(names[0]).parent)}:
        print(unit)
(folder / "compile_commands.json").write_text(json.dumps(commands))
