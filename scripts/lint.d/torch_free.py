#!/usr/bin/env python3
"""Prints the sources in lib/ and apps/ of a compile_commands.json that reach no LibTorch header.

usage: torch_free.py COMPILE_COMMANDS   run from the root
"""

import json
import pathlib
import sys

import rules

root = pathlib.Path.cwd()
lint = rules.Lint(root)
with open(sys.argv[1]) as commands:
    sources = {pathlib.Path(entry["file"]) for entry in json.load(commands)}
for source in sorted(sources):
    if not source.is_relative_to(root):
        continue
    name = str(source.relative_to(root))
    if name.split("/")[0] in ("lib", "apps") and not lint.reaches_torch(name):
        print(name)
