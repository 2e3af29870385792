#!/usr/bin/env python3
"""Judges the event files of a run: TensorBoard's own reader must find in them what metrics.jsonl says, as 32-bit numbers.

usage: tensorboard_judge.py RUN_DIR

Where a run was killed and went on, steps may be in two files; the later file counts, as TensorBoard shows it.
Exit code 1 names what differs; 77: no tensorboard.
"""
import json
import logging
import struct
import sys
from pathlib import Path

logging.disable(logging.WARNING)  # TensorFlow is not installed
try:
    from tensorboard.backend.event_processing import event_file_loader
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)


def narrow(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def expected(line):
    if "validation" in line:
        return {f"validation/{line['validation']}/{figure}": value for figure, value in line["figures"].items() if value is not None}
    return {key: value for key, value in line.items() if key != "step" and value is not None}


def main(run):
    found = {}
    for file in sorted((run / "tensorboard").glob("events.out.tfevents.*")):
        for event in event_file_loader.EventFileLoader(str(file)).Load():
            for value in event.summary.value:
                if value.tensor.float_val:
                    found[event.step, value.tag] = value.tensor.float_val[0]
    wanted = {}
    for text in (run / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        wanted.update({(line["step"], tag): narrow(value) for tag, value in expected(line).items()})
    for place in sorted({*found, *wanted}):
        if found.get(place) != wanted.get(place):
            sys.exit(f"{place[1]} of step {place[0]} is {found.get(place)}, and metrics.jsonl has {wanted.get(place)}")
    if not wanted:
        sys.exit(f"{run}: metrics.jsonl is empty")
    print(f"{len(wanted)} numbers: equal")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
