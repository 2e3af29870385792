#!/usr/bin/env python3
"""Unpacks the C++ part of the LibTorch wheels (libraries, headers); Python's standard library only.

usage: unpack_wheels.py FOLDER cpu|cuda WHEEL...        unpack
       unpack_wheels.py --nvidia-requirements WHEEL     print the NVIDIA packages the wheel asks for
"""

import pathlib
import re
import shutil
import sys
import zipfile

# What a CPU build neither links nor opens: CUDA code, and the parts for Python.
CUDA_ONLY = re.compile(r"lib(torch_cuda|torch_nvshmem|c10_cuda|caffe2_nvrtc)")
PYTHON_ONLY = re.compile(r"lib(torch_python|shm)")


def wanted(name, flavor):
    if name.startswith("nvidia/"):
        return re.match(r"nvidia/\w+/(lib|include)/", name) is not None
    if name.startswith("torch/include/"):
        return True
    match = re.match(r"torch/lib/(lib[^/]*\.so[^/]*)$", name)
    if not match or PYTHON_ONLY.match(match[1]):
        return False
    return flavor == "cuda" or not CUDA_ONLY.match(match[1])


def unpack(folder, flavor, wheels):
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if info.is_dir() or not wanted(info.filename, flavor):
                    continue
                target = pathlib.Path(folder, info.filename)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, open(target, "wb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 22)


def nvidia_requirements(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if re.fullmatch(r"torch-[^/]*\.dist-info/METADATA", n))
        metadata = archive.read(name).decode()
    for requirement in re.findall(r"^Requires-Dist: ((?:cuda-toolkit|nvidia-)[^; ]*)", metadata, re.MULTILINE):
        print(requirement)


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "--nvidia-requirements":
        nvidia_requirements(arguments[1])
    elif len(arguments) >= 3 and arguments[1] in ("cpu", "cuda"):
        unpack(arguments[0], arguments[1], arguments[2:])
    else:
        sys.exit(__doc__)


main(sys.argv[1:])
