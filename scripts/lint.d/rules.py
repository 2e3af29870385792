#!/usr/bin/env python3
"""Checks what no compiler checks: who includes whom, where LibTorch and the OS are touched, size and leftovers.

usage: rules.py [ROOT]   prints `file:line: sentence` for each breach and exits 1 if there is one
"""

import pathlib
import re
import subprocess
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
TORCH_HEADER = re.compile(r"(ATen|torch|c10|caffe2)/")
TORCH_MODULES = {"kernels", "model", "optim", "train", "decode"}
TORCH_APPS = {"train", "translate", "soup_validated", "export_verified"}
HEADERS_MAY_INCLUDE = frozenset({"ATen/core/Tensor.h", "c10/core/Device.h", "c10/core/ScalarType.h"})  # the first has the others
SOURCES = (".cpp", ".hpp", ".cu", ".cuh", ".ipp", ".h")
OS_DOOR = re.compile(r"\bstd::(o|i)?fstream\b|\bf(re)?open\s*\(|(?<![\w:])::(open|creat|rename|unlink|mkdir|fsync|pwrite|write|mmap)\s*\(")
STREAMS = re.compile(r"\bstd::(cout|cin)\b|\bfmt::print\s*\(\s*\"|(?<![\w:])(std::)?(printf|puts|putchar)\s*\(|\b(stdout|stdin)\b")
ENDS_PROCESS = re.compile(r"(\bstd::|(?<![\w:])::|^\s*)(exit|_exit|_Exit|abort|quick_exit|terminate)\s*\(")
ENDS_PROCESS_IN = {"lib/comm/environment.cpp"}  # the one place where a rank ends the others
NARROWING = re.compile(r"\bstatic_cast<\s*(unsigned|unsigned int|int|short|char|(std::)?u?int(8|16|32)_t)\s*>")
TYPE = re.compile(r"^(?:class|struct|enum class|enum) ([A-Z]\w*)\b(?!;|::)|^using ([A-Z]\w*) =", re.M)  # of a namespace
# The words are split so that this file passes its own check.
LEFTOVER = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b|(?i:\bnot imple" r"mented\b|\bfor" r" now\b|\bplace" r"holder\b)")
CONFIG_NAME = re.compile(r"\bconfigs/[\w-]+\.json\b")
PROSE = re.compile(r"LICENSE$|tests/support/text/")  # other people's words
LONGEST_FILE, LONGEST_MAIN = 600, 120


class Lint:
    def __init__(self, root):
        self.root = root
        self.breaches = 0
        self.layer, self.sideways = {}, set()
        self.read_layers()
        self.files = self.list_files()
        self.narrowing = self.read_narrowing()  # file -> casts that are known to be right
        self.names = {}  # module -> name -> header of it, or of core, that declares it
        self.includes = {}  # file -> [(line number, quoted, path)]
        self.reached = {}  # (file, except) -> the LibTorch header it reaches, or None

    def read_layers(self):
        layer = 0
        for line in (self.root / "lib/layers.txt").read_text().splitlines():
            if line.startswith("#") or not line.strip():
                continue
            if ">" in line:
                self.sideways.add(tuple(line.split(" > ")))
            else:
                self.layer.update({name: layer for name in line.split()})
                layer += 1

    def read_narrowing(self):
        """Lines `COUNT FILE: REASON`."""
        known = {}
        listed = self.root / "scripts/lint.d/narrowing.txt"
        for line in listed.read_text().splitlines() if listed.is_file() else []:
            if line and not line.startswith("#"):
                count, name = line.split(":")[0].split()
                known[name] = int(count)
        return known

    def list_files(self):
        command = ["git", "-C", str(self.root), "ls-files", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
        return [name for name in names if (self.root / name).is_file() and not (self.root / name).is_symlink()]

    def refuse(self, name, line, sentence):
        self.breaches += 1
        print(f"{name}:{line}: {sentence}")

    def text(self, name):
        try:
            return (self.root / name).read_text()
        except (UnicodeDecodeError, FileNotFoundError):
            return ""

    def includes_of(self, name):
        if name not in self.includes:
            found = []
            for number, line in enumerate(self.text(name).splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    found.append((number, match[1] == '"', match[2]))
            self.includes[name] = found
        return self.includes[name]

    def reaches_torch(self, name, but=frozenset()):
        """The LibTorch header, other than those in `but`, that `name` includes, itself or through ours; None without."""
        if (name, but) not in self.reached:
            self.reached[name, but] = None  # ends circles
            for _, quoted, path in self.includes_of(name):
                inner = "lib/" + path
                if not quoted and TORCH_HEADER.match(path) and path not in but:
                    self.reached[name, but] = path
                elif quoted and self.reaches_torch(inner, but):
                    self.reached[name, but] = f"{path} -> {self.reaches_torch(inner, but)}"
        return self.reached[name, but]

    def check_direction(self, name, module):
        if module not in self.layer:
            self.refuse(name, 1, f"lib/{module} is not in lib/layers.txt")
            return
        for number, quoted, path in self.includes_of(name):
            other = path.split("/")[0]
            if not quoted or other == module or other not in self.layer:
                continue
            if self.layer[other] >= self.layer[module] and (module, other) not in self.sideways:
                self.refuse(name, number, f'{module} may not include {other} ("{path}"): lib/layers.txt lists who may')

    def check_torch(self, name, owner, may):
        reached = self.reaches_torch(name)
        if reached and not may:
            self.refuse(name, 1, f"{owner} builds without LibTorch, but this file reaches {reached}")
        if may and name.endswith("_config.hpp") and reached:
            self.refuse(name, 1, f"configs are read on login nodes without LibTorch, but this file reaches {reached}")
        # A header for its own folder may include more (5 s and 0.5 GB a unit); what others include may not.
        for number, quoted, path in self.includes_of(name):
            if quoted and path.split("/")[0] in self.layer and "lib/" + path.split("/")[0] != owner:
                large = self.reaches_torch("lib/" + path, HEADERS_MAY_INCLUDE)
                if large:
                    self.refuse(name, number, f"{path} reaches {large}; headers for others include ATen/core/Tensor.h at most")

    def check_os(self, name):
        for number, line in enumerate(self.text(name).splitlines(), 1):
            code = line.split("//")[0]
            if STREAMS.search(re.sub(r'"[^"]*"', '""', code)) and "#include" not in code:
                self.refuse(name, number, "Context::print and Files::standard_input alone use the standard streams: they tell of what was lost")
            if name.startswith("apps/"):
                continue
            if OS_DOOR.search(code) and not name.startswith("lib/core/file"):
                self.refuse(name, number, "only core/file.hpp opens, writes, renames or maps files")
            if ENDS_PROCESS.search(code) and name not in ENDS_PROCESS_IN:
                self.refuse(name, number, "the library throws argosy::Error; it never ends the process")

    def check_narrowing(self, name):
        """A cast to a narrow integer says nothing of a number that is too large: 2^32 + 1 checkpoints became 1."""
        numbers = [n for n, line in enumerate(self.text(name).splitlines(), 1) for _ in NARROWING.findall(line.split("//")[0])]
        known = self.narrowing.pop(name, 0)
        if len(numbers) > known:
            self.refuse(name, numbers[-1], f"{len(numbers)} casts to narrow integers, {known} known: use narrow<T>() (core/error.hpp), "
                        "or say in scripts/lint.d/narrowing.txt why no number can be too large")
        elif len(numbers) < known:
            self.refuse("scripts/lint.d/narrowing.txt", 1, f"{name} has {len(numbers)} casts to narrow integers, not {known}: correct its line")

    def check_unity(self, name, module):
        """Sources of a module are compiled together: a header read after a file must not find that file's types for its own."""
        text = self.text(name)
        begin, end = text.find("\nnamespace {\n"), text.rfind("\n}  // namespace\n")
        if begin < 0:
            return
        if module not in self.names:
            headers = [f for f in self.files if f.endswith(".hpp") and f.startswith(("lib/core/", f"lib/{module}/"))]
            self.names[module] = {m[1] or m[2]: header for header in headers for m in TYPE.finditer(self.text(header))}
        for match in TYPE.finditer(text, begin, end):
            found = match[1] or match[2]
            other = self.names[module].get(found)
            if other:
                line = text.count("\n", 0, match.start()) + 1
                self.refuse(name, line, f"{other} declares {found} too; the module's sources are compiled together: rename this one")

    def check_text(self, name):
        lines = self.text(name).splitlines()
        for number, line in enumerate(lines, 1):
            if LEFTOVER.search(line):
                self.refuse(name, number, f"leftover: {line.strip()[:80]}")
        if name.endswith(SOURCES):
            longest = LONGEST_MAIN if name.startswith("apps/") else LONGEST_FILE
            if len(lines) > longest:
                self.refuse(name, len(lines), f"{len(lines)} lines; files here have at most {longest}: split it")
            if name.endswith(".hpp") and not any(line == "#pragma once" for line in lines):
                self.refuse(name, 1, "header without #pragma once")

    def check_config_names(self, name):
        """What --help, README, job scripts and documents tell people to type must be there."""
        for number, line in enumerate(self.text(name).splitlines(), 1):
            for config in CONFIG_NAME.findall(line):
                if not (self.root / config).is_file():
                    self.refuse(name, number, f"there is no {config}")

    def run(self):
        for name in self.files:
            parts = name.split("/")
            if parts[0] == "lib" and len(parts) > 2 and name.endswith(SOURCES):
                self.check_direction(name, parts[1])
                self.check_torch(name, f"lib/{parts[1]}", parts[1] in TORCH_MODULES)
                self.check_os(name)
                if name.endswith(".cpp"):
                    self.check_unity(name, parts[1])
            if parts[0] == "apps" and name.endswith(SOURCES):
                self.check_os(name)
            if parts[0] in ("lib", "apps") and name.endswith((".cpp", ".hpp")) and name != "lib/core/error.hpp":
                self.check_narrowing(name)
            if parts[0] == "apps" and name.endswith(".cpp"):
                self.check_torch(name, name, pathlib.Path(name).stem in TORCH_APPS)
            if not PROSE.match(name):
                self.check_text(name)
            if parts[0] != "tests":  # which make configurations of their own
                self.check_config_names(name)
        for name in self.narrowing:
            self.refuse("scripts/lint.d/narrowing.txt", 1, f"{name} is not there: remove its line")
        return 1 if self.breaches else 0


if __name__ == "__main__":
    sys.exit(Lint(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()).run())
