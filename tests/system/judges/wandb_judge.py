#!/usr/bin/env python3
"""Judges the Weights & Biases folder of a run: wandb's own reader must find in it what metrics.jsonl and run_config.json say.

usage: wandb_judge.py RUN_DIR

Exit code 1 names what differs; 77: no wandb.
"""
import json
import sys
from pathlib import Path

try:
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore
except ImportError as missing:
    print(f"judge skipped: {missing}; scripts/setup --judges installs it")
    sys.exit(77)


def records_of(path):
    store = DataStore()
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        record = Record()
        record.ParseFromString(data)
        yield record


def items(list_of_items):
    return {item.key: json.loads(item.value_json) for item in list_of_items}


def expected(line):
    if "validation" in line:
        return {f"validation/{line['validation']}/{figure}": value for figure, value in line["figures"].items() if value is not None}
    return {key: value for key, value in line.items() if key != "step" and value is not None}


def main(run):
    [folder] = (run / "wandb").glob("offline-run-*")
    [file] = folder.glob("*.wandb")
    records = list(records_of(file))
    first = records[0].run
    if file.name != f"run-{first.run_id}.wandb" or not folder.name.endswith(first.run_id):
        sys.exit(f"the run is {first.run_id}, its file {file}")
    config = json.loads((run / "run_config.json").read_text())
    found = items(first.config.update)
    for record in records:  # of later starts
        found.update(items(record.config.update) if record.WhichOneof("record_type") == "config" else {})
    if found != config:
        different = [key for key in sorted({*found, *config}) if found.get(key) != config.get(key)]
        sys.exit(f"the run's configuration differs from run_config.json in {', '.join(different)}")
    wandb = config["telemetry"]["wandb"]
    for key, value in {"entity": first.entity, "project": first.project, "group": first.run_group, "name": first.display_name}.items():
        if value != (wandb[key] or ""):
            sys.exit(f"{key} is {value!r} in the run and {wandb[key]!r} in run_config.json")
    histories = [record.history for record in records if record.WhichOneof("record_type") == "history"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if len(lines) != len(histories):
        sys.exit(f"{len(histories)} histories, and {len(lines)} lines of metrics.jsonl")
    for line, history in zip(lines, histories):
        values = items(history.item)
        if history.step.num != line["step"] or values.pop("_step") != line["step"] or values.pop("_runtime") < 0 or values.pop("_timestamp") < 1e9:
            sys.exit(f"step {history.step.num} for the line of step {line['step']}")
        if values != expected(line):
            sys.exit(f"step {line['step']}: {values}, and metrics.jsonl has {expected(line)}")
    if records[-1].WhichOneof("record_type") != "exit" or records[-1].exit.exit_code != 0:
        sys.exit("the run has no end")
    if [record.num for record in records] != list(range(1, len(records) + 1)):
        sys.exit("records are not numbered in order")
    print(f"{len(histories)} histories: equal")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
