"use strict";
// Draws the page of scripts/report from the JSON in #data. A point is [step, value, tgt_tokens]; that of an interval
// with clipped steps has their share as well.
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const color = (i) => `var(--c${i % 12})`;
let axis = location.hash === "#tokens" ? 2 : 0; // the hash survives a reload

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function number(value) {
  if (typeof value !== "number") return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return (value / 1e9).toPrecision(3) + " G";
  if (size >= 1e6) return (value / 1e6).toPrecision(3) + " M";
  if (size >= 1e4) return (value / 1e3).toPrecision(3) + " k";
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}
function duration(seconds) {
  if (typeof seconds !== "number") return "–";
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/// About `count` round numbers from low to high.
function ticks(low, high, count) {
  const raw = (high - low) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; ++i) found.push(i * step);
  return found;
}

// Text keeps its size in a picture that is as wide as its place.
const width = innerWidth < 600 ? Math.max(280, innerWidth - 56) : 560, height = innerWidth < 600 ? 240 : 300;
const left = 62, right = 24, top_ = 10, bottom = 34;

/// lines: [{label, color, points, dashed?, dots?, only_dots?}]; note: below the picture.
function plot(title, note, lines) {
  const figure = element("figure", {}, element("h2", {}, title));
  const caption = element("figcaption", {}, note);
  const picture = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  figure.append(picture, caption);
  const shown = lines.map((line) => ({ ...line, points: line.points.filter((p) => typeof p[axis] === "number") })).filter((line) => line.points.length);
  const xs = shown.flatMap((line) => line.points.map((p) => p[axis])), ys = shown.flatMap((line) => line.points.map((p) => p[1]));
  if (!xs.length) return figure;
  const least = (all) => all.reduce((a, b) => Math.min(a, b)), most = (all) => all.reduce((a, b) => Math.max(a, b));
  let [x0, x1, y0, y1] = [least(xs), most(xs), least(ys), most(ys)];
  // The first steps of a run would flatten the rest: high values beyond the 98th percentile leave at the top.
  const sorted = [...ys].sort((a, b) => a - b), usual = sorted[Math.floor(0.98 * (sorted.length - 1))];
  if (sorted.length > 50 && y1 - y0 > 3 * (usual - y0)) y1 = usual + 0.1 * (usual - y0);
  if (x1 === x0) x1 = x0 + 1;
  if (y1 === y0) [y0, y1] = y0 === 0 ? [0, 1] : [y0 - Math.abs(y0) / 10, y1 + Math.abs(y1) / 10];
  const pad = 0.04 * (y1 - y0);
  y0 = y0 >= 0 && y0 - pad < 0 ? 0 : y0 - pad;
  y1 += pad;
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (y) => Math.max(top_, top_ + ((y1 - y) / (y1 - y0)) * (height - top_ - bottom));
  for (const y of ticks(y0, y1, 5)) {
    picture.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: py(y), y2: py(y) }));
    picture.append(drawn("text", { x: left - 6, y: py(y) + 4, "text-anchor": "end" }, number(y)));
  }
  for (const x of ticks(x0, x1, 5)) picture.append(drawn("text", { x: px(x), y: height - bottom + 18, "text-anchor": "middle" }, number(x)));
  picture.append(drawn("text", { x: width - right, y: height - 3, "text-anchor": "end" }, axis === 2 ? "tgt_tokens" : "steps"));
  for (const line of shown) {
    if (!line.only_dots) {
      const path = line.points.map((p, i) => `${i ? "L" : "M"}${px(p[axis]).toFixed(1)} ${py(p[1]).toFixed(1)}`).join("");
      picture.append(drawn("path", { class: "series", d: path, style: `stroke: ${line.color}`, ...(line.dashed && { "stroke-dasharray": "6 4" }) }));
    }
    if (line.only_dots || line.dots || line.points.length === 1)
      for (const p of line.points) picture.append(drawn("circle", { cx: px(p[axis]), cy: py(p[1]), r: line.only_dots ? 1.5 + 3 * p[3] : 2.8, style: `fill: ${line.color}` }));
  }
  if (shown.length > 2) figure.append(element("p", { class: "legend" }, ...shown.map((line) => element("span", {}, element("span", { class: "dot", style: `background: ${line.color}` }), line.label))));
  const cursor = drawn("line", { class: "cursor", y1: top_, y2: height - bottom });
  picture.append(cursor);
  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect(), x = x0 + (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * (x1 - x0);
    const nearest = shown.map((line) => [line, line.points.reduce((a, b) => (Math.abs(b[axis] - x) < Math.abs(a[axis] - x) ? b : a))]);
    const at = nearest.reduce((a, b) => (Math.abs(b[1][axis] - x) < Math.abs(a[1][axis] - x) ? b : a))[1];
    for (const key of ["x1", "x2"]) cursor.setAttribute(key, px(at[axis]));
    cursor.style.visibility = "visible";
    caption.textContent = `${axis === 2 ? "tgt_tokens" : "step"} ${number(at[axis])}: ` + nearest.map(([line, p]) => `${line.label} ${number(p[1])}`).join(" · ");
  });
  picture.addEventListener("pointerleave", () => {
    cursor.style.visibility = "hidden";
    caption.textContent = note;
  });
  return figure;
}

const of = (i, label) => (runs.length > 1 ? `${runs[i].name} ${label}` : label);
const lines_of = (figure, label, scale = 1) =>
  runs.flatMap((run, i) => (run.series[figure] ? [{ label: of(i, label), color: color(i), points: run.series[figure].map((p) => [p[0], p[1] * scale, p[2]]) }] : []));
/// The sets of a validation differ in colour where there is one run, and share that of their run otherwise.
const validation_lines = (figure, first) =>
  runs.flatMap((run, i) =>
    Object.entries(run.validation[figure] || {}).map(([set, points], k) => ({ label: of(i, set), color: color(runs.length > 1 ? i : first + k), points, dots: true, dashed: true })));

/// Of tasks or components.
function add_parts(add, figure, title, note) {
  const left_out = runs.some((run) => run.parts[figure].of > Object.keys(run.parts[figure].lines).length);
  const lines = runs.flatMap((run, i) =>
    Object.entries(run.parts[figure].lines).map(([part, points], k) => ({ label: of(i, part), color: color(runs.length > 1 ? i : k), points })));
  add(title, note + (left_out ? "; those with the highest last values" : ""), lines);
}

function draw() {
  const plots = document.getElementById("plots");
  plots.replaceChildren();
  const add = (title, note, lines) => lines.length && plots.append(plot(title, note, lines));
  add("Loss", "line: training, without label smoothing; dashed: validation", [...lines_of("nll", "training"), ...validation_lines("loss", 1)]);
  add_parts(add, "nll", "Loss by corpus", "training, without label smoothing");
  add_parts(add, "share", "Share of tokens by corpus", "of tgt_tokens, 1 is all");
  const figures = new Set(runs.flatMap((run) => Object.keys(run.validation)));
  for (const figure of figures) if (figure !== "loss") add(`Validation: ${figure}`, "", validation_lines(figure, 0));
  add("Learning rate", "", lines_of("lr", "lr"));
  const clips = runs.flatMap((run, i) => (run.series.clips ? [{ label: of(i, "clipped"), color: color(i), points: run.series.clips, only_dots: true }] : []));
  add("Gradient norm", "before clipping; dots: intervals with clipped steps, larger for more of them", [...lines_of("grad_norm", "norm"), ...clips]);
  add_parts(add, "grad_norm", "Gradient norm by component", "before clipping");
  add("Throughput", "tgt_tokens per second, all ranks", lines_of("tgt_tokens_per_s", "tgt_tokens/s"));
  add("Time of a step", "milliseconds", lines_of("step_ms", "ms"));
  add("Waiting for data", "percent of the time of steps", lines_of("data_wait", "%"));
  add("Memory", "GiB, peak of the fullest rank", lines_of("memory_bytes", "GiB", 2 ** -30));
  add("Computing", "TFLOP/s per rank", lines_of("tflops_per_rank", "TFLOP/s"));
}

function row(cells, name = "td", wide = false) {
  return element("tr", {}, ...cells.map((cell) => element(name, wide ? { class: "wide" } : {}, ...[].concat(cell))));
}
function best_of(run) {
  const points = Object.entries(run.validation.loss || {}).flatMap(([set, list]) => list.map((p) => [p[1], p[0], set]));
  if (!points.length) return "–";
  const [value, step, set] = points.reduce((a, b) => (b[0] < a[0] ? b : a));
  return `${number(value)} (${set}, step ${step})`;
}
function table_of_runs() {
  const titles = ["run", "state", "step", "done", "training loss", "best validation loss", "tgt_tokens", "tgt_tokens/s", "ETA"];
  const table = element("table", {}, row(titles, "th"));
  runs.forEach((run, i) => {
    const { status, last } = run, done = status.fraction_done ?? last.fraction_done;
    table.append(row([
      [element("span", { class: "dot", style: `background: ${color(i)}` }), run.name], status.state || "–", String(status.step ?? last.step ?? "–"),
      typeof done === "number" ? `${(100 * done).toFixed(1)} %` : "–", number(last.nll), best_of(run), number(last.total_tgt_tokens), number(last.tgt_tokens_per_s),
      status.state === "running" ? duration(status.eta_s ?? last.eta_s) : "–"]));
  });
  const place = document.getElementById("runs");
  place.append(element("div", { class: "scroll" }, table));
  for (const run of runs) {
    if (run.broken) place.append(element("p", { class: "note" }, `${run.name}: ${run.broken} line(s) of metrics.jsonl could not be read and are left out.`));
    if (!Object.keys(run.series).length) place.append(element("p", { class: "note" }, `${run.name}: no figures yet.`));
  }
}
/// The last figures of validation sets by their languages: a row for each source, a column for each target. The shade goes from the least to the greatest.
function directions() {
  const place = document.getElementById("directions");
  runs.forEach((run, i) =>
    Object.entries(run.directions).forEach(([figure, by_source]) => {
      const sources = Object.keys(by_source), written = new Set(sources.flatMap((source) => Object.keys(by_source[source])));
      const targets = [...new Set([...sources, ...written])].filter((language) => written.has(language));
      const values = sources.flatMap((source) => Object.values(by_source[source]));
      if (values.length < 2) return;
      const least = Math.min(...values), range = Math.max(...values) - least || 1;
      const table = element("table", { class: "directions" }, row(["from \\ to", ...targets], "th"));
      for (const source of sources) {
        const cells = targets.map((target) => {
          const value = by_source[source][target];
          const share = value === undefined ? 0 : 10 + 45 * (value - least) / range;
          return element("td", { style: `background: color-mix(in srgb, ${color(i)} ${share.toFixed(0)}%, transparent)` }, value === undefined ? "–" : number(value));
        });
        table.append(element("tr", {}, element("th", {}, source), ...cells));
      }
      place.append(element("h2", {}, `Directions: ${of(i, figure)}`), element("div", { class: "scroll" }, table));
    }));
}
/// For each sample of each set its source, its reference, and its translations from the first to the last.
function samples() {
  const place = document.getElementById("samples");
  runs.forEach((run, i) =>
    Object.entries(run.samples).forEach(([set, moments]) => {
      const last = moments[moments.length - 1][1];
      if (!last.length) return;
      place.append(element("h2", {}, `Sample translations: ${of(i, set)}`));
      last.forEach(([source, reference], k) => {
        const rows = [["source", source], ["reference", reference]];
        for (const [step, lines] of moments) if (lines[k]) rows.push([`step ${step}`, lines[k][2]]);
        place.append(element("div", { class: "scroll" }, element("table", { class: "sample" }, ...rows.map((cells) => row(cells, "td", true)))));
      });
    }));
}
function configurations() {
  const place = document.getElementById("configurations"), known = runs.filter((run) => Object.keys(run.config).length);
  const keys = [...new Set(known.flatMap((run) => Object.keys(run.config)))].sort();
  const text = (run, key) => (key in run.config ? JSON.stringify(run.config[key]) : "–");
  const table = (chosen) => element("div", { class: "scroll" }, element("table", {}, row(["key", ...known.map((run) => run.name)], "th"), ...chosen.map((key) => row([key, ...known.map((run) => text(run, key))], "td", true))));
  if (known.length > 1) {
    const different = keys.filter((key) => new Set(known.map((run) => text(run, key))).size > 1);
    place.append(element("h2", {}, "Keys in which the configurations differ"), different.length ? table(different) : element("p", { class: "note" }, "None."));
  }
  if (known.length) place.append(element("details", {}, element("summary", {}, known.length > 1 ? "Whole configurations" : "Configuration"), table(keys)));
}
function axis_buttons() {
  const place = document.getElementById("axis");
  place.append("plotted over");
  for (const [name, index] of [["steps", 0], ["tokens", 2]]) {
    const button = element("button", { type: "button", "aria-pressed": String(axis === index) }, name);
    button.addEventListener("click", () => {
      axis = index;
      history.replaceState(null, "", `#${name}`);
      for (const other of place.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
      draw();
    });
    place.append(button);
  }
}

document.getElementById("written").textContent = `written ${data.written}`;
table_of_runs();
axis_buttons();
draw();
directions();
samples();
configurations();
