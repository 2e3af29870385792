#!/usr/bin/env bats
# scripts/report on run directories whose figures are known; the last case in a browser.

bats_require_minimum_version 1.5.0

setup() {
  cd "$BATS_TEST_TMPDIR" || return
  report=${ARGOSY_SOURCE_DIR:?}/scripts/report
  python3 - <<'PYTHON'
import json, pathlib

for name, lr in (("one", 1e-3), ("two", 2e-3)):
    run = pathlib.Path("runs") / name / "train"
    run.mkdir(parents=True)
    with open(run / "metrics.jsonl", "w") as file:
        for step in range(10, 30010, 10):
            line = {"step": step, "fraction_done": step / 30000, "nll": 9 - step / 10000, "loss": 10.0, "lr": lr, "grad_norm": 1.0,
                    "clip_frac": 0.5 if step == 20 else 0, "total_tgt_tokens": 100 * step, "tgt_tokens_per_s": 5000, "step_ms": 20,
                    "data_wait_ms": 1 if step < 40 else 5, "memory_bytes": 1 << 30, "tflops_per_rank": 0.0, "mfu": None}
            if step == 70:
                line["nll"] = 77.5  # survives thinning
            file.write(json.dumps(line) + "\n")
            if step % 10000 == 5000:
                sample = {"source": "Good <b>morning</b>", "reference": "Buenos días", "translation": f"Buenas {step}"}
                file.write(json.dumps({"step": step + 5, "validation": "dev", "figures": {"loss": 8.5, "chrf": 30 + step / 10000}, "samples": [sample]}) + "\n")
        file.write('not a record\n{"step": 300')
    (run / "status.json").write_text(json.dumps({"state": "done", "step": 30000, "fraction_done": 1.0}))
    (run / "run_config.json").write_text(json.dumps({"schedule": {"lr": lr, "length": 30000}, "model": {"preset": "</script>"}}))
PYTHON
  one=runs/one/train two=runs/two/train
}

data() { # data EXPRESSION: of the page's data
  python3 - "$1" "${2:-$one/report.html}" <<'PYTHON'
import json, re, sys
page = open(sys.argv[2], encoding="utf-8").read()
data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])
run = data["runs"][0]
print(eval(sys.argv[1]))
PYTHON
}

@test "the page holds the figures of the run, thinned, without losing peaks, and of no other place" {
  run -0 "$report" "$one"
  [ "$output" = "$one/report.html" ]
  [ "$(data 'run["series"]["nll"][0], run["series"]["nll"][-1]')" = "([10, 8.999, 1000], [30000, 6.0, 3000000])" ]
  [ "$(data 'max(point[1] for point in run["series"]["nll"]), len(run["series"]["nll"]) <= 1500')" = "(77.5, True)" ]
  [ "$(data 'run["validation"]["loss"]["dev"], run["validation"]["chrf"]["dev"][2]')" = "([[5005, 8.5, 500500], [15005, 8.5, 1500500], [25005, 8.5, 2500500]], [25005, 32.5, 2500500])" ]
  [ "$(data 'run["samples"]["dev"][2], len(run["samples"]["dev"])')" = "([25005, [['Good <b>morning</b>', 'Buenos días', 'Buenas 25000']]], 3)" ]
  [ "$(data 'run["series"]["data_wait"][0][1], run["series"]["data_wait"][-1][1]')" = "(5.0, 25.0)" ]
  [ "$(data 'run["broken"], run["config"]["model.preset"], run["name"]')" = "(1, '</script>', 'train')" ]
  [ "$(grep -oE 'https?://[^"]*' "$one/report.html" | sort -u)" = http://www.w3.org/2000/svg ] # a name, not an address
  run ! grep -qE '(src|href)="[^d]|@import|fetch\(' "$one/report.html"
}

@test "figures by corpus and component are drawn, of many those with the highest last values" {
  python3 - "$one" <<'PYTHON'
import json, sys
with open(sys.argv[1] + "/metrics.jsonl", "w") as file:
    for step in range(1, 51):
        tasks = {f"nll/t{task}": 9 - task / 10 - step / 100 for task in range(20)}
        file.write(json.dumps({"step": step, "total_tgt_tokens": 100 * step, "nll": 8.0, "nll/late": 9.9 if step > 40 else None, "share/t1": 0.25, "grad_norm/decoder.fr": 2.5, **tasks}) + "\n")
PYTHON
  run -0 "$report" "$one"
  [ "$(data 'run["parts"]["nll"]["of"], sorted(run["parts"]["nll"]["lines"]) == sorted(["late", *(f"t{t}" for t in range(7))])')" = "(21, True)" ]
  [ "$(data 'run["parts"]["nll"]["lines"]["late"][0], run["parts"]["nll"]["lines"]["t3"][-1]')" = "([41, 9.9, 4100], [50, 8.2, 5000])" ]
  [ "$(data 'run["parts"]["share"]["lines"]["t1"][1], len(run["parts"]["grad_norm"]["lines"]["decoder.fr"])')" = "([2, 0.25, 200], 50)" ]
  command -v chromium || skip "no chromium"
  chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=5000 --enable-logging=stderr --dump-dom "file://$PWD/$one/report.html" >dom 2>log
  run ! grep -q CONSOLE log
  grep -q '<h2>Loss by corpus</h2>' dom
  grep -q '<h2>Gradient norm by component</h2>' dom
  grep -q 'class="legend".*late' dom
}

@test "several runs have names that tell them apart" {
  run -0 "$report" "$one" "$two" --out page.html
  [ "$(data '[run["name"] for run in data["runs"]], [run["config"]["schedule.lr"] for run in data["runs"]]' page.html)" = "(['one/train', 'two/train'], [0.001, 0.002])" ]
  [ ! -e "$one/report.html" ]
}

@test "the page reloads itself while a run goes on, and --watch writes it until then" {
  "$report" "$one"
  run ! grep -q 'http-equiv="refresh"' "$one/report.html"
  sed -i 's/"done"/"running"/' "$one/status.json"
  "$report" "$one"
  grep -q 'http-equiv="refresh"' "$one/report.html"
  rm "$one/report.html"
  "$report" "$one" --watch 0.2 >written &
  watching=$!
  until grep -q 'http-equiv="refresh"' "$one/report.html" 2>/dev/null; do sleep 0.1; done
  sed -i 's/"running"/"stopped"/' "$one/status.json"
  wait "$watching"
  run ! grep -q 'http-equiv="refresh"' "$one/report.html"
  [ "$(cat written)" = "$one/report.html" ]
}

@test "validation sets of several directions are a table by source and target" {
  python3 - "$one" <<'PYTHON'
import json, pathlib, sys
path = pathlib.Path(sys.argv[1]) / "metrics.jsonl"
lines = [{"step": step, "validation": f"{a}-{b}", "figures": {"bleu": 10.0 * i + step}, "languages": [a, b]}
         for step in (1, 2) for i, (a, b) in enumerate((("en", "fr"), ("en", "cs"), ("fr", "en")))]
path.write_text("".join(json.dumps(line) + "\n" for line in lines))
PYTHON
  "$report" "$one" --out page.html
  [ "$(data 'run["directions"]["bleu"]' page.html)" = "{'en': {'fr': 2.0, 'cs': 12.0}, 'fr': {'en': 22.0}}" ]
  command -v chromium || skip "no chromium"
  chromium --headless --no-sandbox --disable-gpu --virtual-time-budget=5000 --enable-logging=stderr --dump-dom "file://$PWD/page.html" >dom 2>log
  run ! grep -q CONSOLE log
  python3 - <<'PYTHON'
import re
table = re.search(r'<table class="directions">(.*?)</table>', open("dom", encoding="utf-8").read(), re.S)[1]
rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", text) for text in re.findall(r"<tr>(.*?)</tr>", table, re.S)]
assert rows[0][1:] == ["en", "fr", "cs"] and [row[0] for row in rows[1:]] == ["en", "fr"], rows
assert rows[1][1:] == ["–", "2", "12"] and rows[2][1:] == ["22", "–", "–"], rows
PYTHON
}

@test "what is no run, and a page that cannot be written, are one sentence" {
  run -2 "$report" none
  [ "$output" = "report: none is not a folder; give the run_dir of a training" ]
  mkdir empty
  run -2 "$report" "$one" empty
  [[ $output == "report: empty has neither metrics.jsonl nor status.json; give"* ]]
  run -2 "$report" "$one" --watch 0
  run -4 "$report" "$one" --out no/such/page.html
  [[ $output == "report: no/such/page.html cannot be written (No such file or directory); give another file with --out" ]]
}

@test "a run that has only begun is a page as well" {
  rm "$one/metrics.jsonl" "$one/run_config.json"
  run -0 "$report" "$one"
  [ "$(data 'run["series"], run["validation"], run["status"]["state"]')" = "({}, {}, 'done')" ]
}

@test "a browser draws every plot without an error, and a key that differs is in the table" {
  command -v chromium || skip "no chromium"
  "$report" "$one" "$two" --out page.html
  chromium --headless --no-sandbox --disable-gpu --window-size=390,900 --virtual-time-budget=5000 --enable-logging=stderr --dump-dom \
    "file://$PWD/page.html#tokens" >dom 2>log
  run ! grep -q CONSOLE log
  python3 - <<'PYTHON'
import re
dom = open("dom", encoding="utf-8").read()
titles = re.findall(r"<h2>(.*?)</h2>", dom)
assert titles == ["Loss", "Validation: chrf", "Learning rate", "Gradient norm", "Throughput", "Time of a step", "Waiting for data", "Memory",
                  "Computing", "Sample translations: one/train dev", "Sample translations: two/train dev", "Keys in which the configurations differ"], titles
lines = [len(re.findall('class="series"', figure)) for figure in re.findall(r"<figure>.*?</figure>", dom, re.S)]
assert lines == [4, 2, 2, 2, 2, 2, 2, 2, 2], lines
assert dom.count(">tgt_tokens</text>") == 9
assert not re.search(r">-[0-9]", dom), "an axis below 0, where no figure is"
sample = re.search(r'<table class="sample">(.*?)</table>', dom, re.S)[1]
assert re.findall(r"<td[^>]*>(.*?)</td>", sample) == ["source", "Good &lt;b&gt;morning&lt;/b&gt;", "reference", "Buenos días",
    "step 5005", "Buenas 5000", "step 15005", "Buenas 15000", "step 25005", "Buenas 25000"], sample
assert '<td class="wide">schedule.lr</td><td class="wide">0.001</td><td class="wide">0.002</td>' in dom
assert re.search(r"<circle[^>]*r=\"3\"", dom), "the interval with clipped steps"
PYTHON
}
