#!/usr/bin/env python3
"""Judges a checkpoint: h5py must find in its shards, and in model.h5, what our reader reads.

usage: hdf5_judge.py CHECKPOINT OURS

OURS holds what our reader gives, as raw fp32: <number of the parameter>.{master,exp_avg,exp_avg_sq,ema}. Tensors are put together
from the shards by their own /index, as lib/checkpoint/FORMAT.md says. Exit code 1 names what differs; 77: no h5py.
"""
import json
import sys
from pathlib import Path

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)

TENSORS = ("master", "exp_avg", "exp_avg_sq", "ema")


def same_bits(a, b):
    return a.size == b.size and numpy.array_equal(a.reshape(-1).view(numpy.uint32), b.reshape(-1).view(numpy.uint32))


def from_shards(checkpoint, manifest, tensor):
    """Every parameter, flat, from the slices that the shards' indices tell of."""
    found = [numpy.full(int(numpy.prod(param["shape"])), numpy.nan, numpy.float32) for param in manifest["params"]]
    for rank, shard in enumerate(manifest["shards"]):
        with h5py.File(checkpoint / shard["file"], "r") as file:
            wanted = {"format": b"argosy-ckpt", "run_uuid": manifest["run_uuid"].encode(), "step": manifest["step"], "rank": rank}
            for name, value in wanted.items():
                if file.attrs[name] != value:
                    sys.exit(f"{shard['file']}: {name} is {file.attrs[name]}, not {value}")
            index = file["index"]
            for param, unit, begin, end, offset in zip(*(index[name][()] for name in ("param_id", "unit", "begin", "end", "offset"))):
                values = file[f"unit/{manifest['units'][unit]['name']}/{tensor}"]
                found[param][begin:end] = values[offset:offset + end - begin]
    return found


def main(checkpoint, ours):
    manifest = json.loads((checkpoint / "MANIFEST.json").read_text())
    for tensor in TENSORS:
        for param, found in zip(manifest["params"], from_shards(checkpoint, manifest, tensor)):
            if not same_bits(found, numpy.fromfile(ours / f"{param['id']}.{tensor}", "<f4")):
                sys.exit(f"{tensor} of {param['name']} differs in the shards")
    with h5py.File(checkpoint / "model.h5", "r") as view:
        for param in manifest["params"]:
            dataset = view[param["name"]]
            if list(dataset.shape) != (param["shape"] or [1]) or not dataset.is_virtual:
                sys.exit(f"{param['name']}: {dataset.shape} in the view, {param['shape']} in the manifest")
            if not same_bits(dataset[()], numpy.fromfile(ours / f"{param['id']}.master", "<f4")):
                sys.exit(f"{param['name']} differs in the view")
    print(f"{len(manifest['params'])} parameters of {len(manifest['shards'])} shards: equal, in the view too")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
