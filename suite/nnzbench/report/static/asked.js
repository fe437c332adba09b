"use strict";
// The part of the page that asks for a reader's own layer: its fields, and the table and the plot that answer.

// The recorded layer that is nearest to what is asked, {rows, inner, columns, zeros}: within a factor of two in each size and
// in the share of nonzeros, and five points of zeros, by the matrix's size, then its columns, then zeros, of about as many the
// fully tuned one.
// A word where there is none: "kind", "size", "columns" or "zeros". Nothing is computed from several layers.
const nearestLayer = (layers, asked) => {
  const octaves = (one, name) => Math.abs(Math.log2(one[name] / asked[name]));
  const points = (one) => Math.abs(one.zeros - asked.zeros);
  const nonzeros = (one) => Math.max(100 - one.zeros, 1e-4);
  const near = {
    kind: () => true,
    size: (one) => octaves(one, "rows") <= 1 && octaves(one, "inner") <= 1,
    columns: (one) => octaves(one, "columns") <= 1,
    zeros: (one) => points(one) <= 5 && Math.abs(Math.log2(nonzeros(one) / nonzeros(asked))) <= 1,
  };
  let left = layers;
  for (const [missing, kept] of Object.entries(near)) {
    left = left.filter(kept);
    if (!left.length) return missing;
  }
  const rank = (one) => [octaves(one, "rows") + octaves(one, "inner"), octaves(one, "columns"), Math.floor(points(one)), one.tuned ? 0 : 1, points(one)];
  const ranked = left.map((one) => [rank(one), one]);
  ranked.sort(([a], [b]) => a.map((value, at) => value - b[at]).find((off) => off) ?? 0);
  return ranked[0][1];
};
// Of 607 recorded layers, each told by the nearest of the others, nine in ten lie within this factor.
const NEAR = 1.53;

// What `nnzbench best --gpu` estimates of a layer, {policy, dense, sparse, verdict, likely}, read in logarithms between the points of
// advise/grid.py, whose sizes are `axes`; null beyond them. `surely` and `fewZeros` are those of advise/answer.py. A side is
// {label, us, within}, or null where nothing is recorded near.
const estimatedLayer = ({ axes, steps, surely: factor, fewZeros }, grids, asked) => {
  const few = asked.zeros < fewZeros; // where dense, whose time no zeros change, is the verdict
  let corners = [[0, 1]];
  for (const [axis, value] of [asked.rows, asked.inner, asked.columns, 1 - Math.max(asked.zeros, fewZeros) / 100].entries()) {
    const places = axes[axis].map(Math.log), at = Math.log(value);
    const on = places.findIndex((place, i) => (place - at) * (places[i + 1] - at) < 1e-9);
    if (on < 0) return null;
    const share = (at - places[on]) / (places[on + 1] - places[on]);
    corners = corners.flatMap(([point, weight]) => [[point * places.length + on, weight * (1 - share)], [point * places.length + on + 1, weight * share]]);
  }
  corners = corners.filter(([, weight]) => weight > 1e-6).sort(([, a], [, b]) => b - a);
  const nearest = corners[0][0];
  // of the kernels that a corner has the fastest; where they refuse as many nonzeros, or are far, the others
  const side = (grid, name) => {
    const nonzeros = asked.rows * asked.inner * (1 - asked.zeros / 100);
    const able = new Set(corners.map(([point]) => grid[name][point]).filter((one) => one !== null && nonzeros <= (grid.kernels[one][3] ?? Infinity)));
    if (grid[name][nearest] === null || !able.size) return null;
    const times = [...able].map((one) => {
      const [label, within, narrowest, , differences] = grid.kernels[one];
      let time = 0;
      const all = differences.map((more) => (time += more));
      const us = 2 ** (corners.reduce((sum, [point, weight]) => sum + weight * all[point], 0) / steps);
      return { label, us, within: asked.columns < narrowest ? null : within[asked.columns > 1 ? 1 : 0] };
    });
    return times.sort((one, other) => one.us - other.us)[0];
  };
  const found = Object.entries(grids).map(([policy, grid]) => ({ policy, dense: side(grid, "dense"), sparse: few ? null : side(grid, "sparse"), cold: grid.cold[nearest] }));
  const { cold, ...told } = found.find((one) => one.dense && one.sparse) ?? found.find((one) => one.dense) ?? {};
  const { dense, sparse } = told;
  if (!dense) return null;
  if (!sparse) return { ...told, verdict: few ? "few zeros" : "far" };
  const [less, more] = sparse.us <= dense.us ? [sparse, dense] : [dense, sparse];
  const surely = factor * less.us <= more.us;
  if (less === sparse && (cold || (sparse.within === null && !surely))) return { ...told, verdict: cold ? "cold" : "guess" };
  const likely = less.within !== null && more.within !== null && less.us * (1 + less.within) >= more.us / (1 + more.within);
  return { ...told, verdict: likely && !surely ? "even" : less === sparse ? "sparse" : "dense", likely };
};
if (typeof module !== "undefined") module.exports = { nearestLayer, estimatedLayer };

// `page` is {data, layers, byId, options, kinds} of index.js; a layer has the columns of results/nearby.py.
const askLayer = (page) => {
  const { data, layers, byId, options, kinds } = page;
  const KIND = { op: "spmm", math: "f16", pattern: "unstructured", policy: "stream" };
  const OPS = { spmm: "sparse × dense (SpMM)", spmv: "sparse × vector (SpMV)", sddmm: "sampled dense × dense (SDDMM)" };
  const NAMES = ["gpu", ...Object.keys(KIND), "rows", "inner", "columns", "zeros"];
  const field = (name) => byId(`ask-${name}`);
  const MISSING = {
    kind: "no such product is recorded on this GPU",
    size: "no matrix within a factor of two of its rows and inner size is recorded",
    columns: "no such width within a factor of two of it is recorded",
    zeros: "no such zeros within 5 points, and twice or half the nonzeros, are recorded",
  };

  // Each choice offers what is recorded of those before it.
  function fill() {
    let left = layers;
    for (const name of ["gpu", ...Object.keys(KIND)]) {
      const words = { op: OPS, ...kinds }[name] ?? {};
      const present = [...new Set(left.map((one) => String(one[name])))];
      const first = field(name).value || KIND[name];
      options(field(name), present.map((key) => [key, words[key] ?? key]), present.includes(first) ? first : present[0]);
      left = left.filter((one) => String(one[name]) === field(name).value);
    }
    return left;
  }

  // What the size fields hold; null where that is no layer.
  function read() {
    if (field("op").value === "spmv") field("columns").value = 1;
    const asked = Object.fromEntries(["rows", "inner", "columns", "zeros"].map((name) => [name, +field(name).value]));
    const whole = [asked.rows, asked.inner, asked.columns].every((size) => Number.isInteger(size) && size >= 1);
    return whole && field("zeros").value !== "" && asked.zeros >= 0 && asked.zeros < 100 ? asked : null;
  }

  // The command that measures what was asked.
  function command(asked) {
    const [op, math, pattern] = ["op", "math", "pattern"].map((name) => field(name).value);
    const words = [`nnzbench best ${asked.rows}x${asked.inner}@${+(asked.zeros / 100).toFixed(6)}`];
    if (op !== "spmv") words.push(`--n ${asked.columns}`);
    words.push(`--dtype ${math === "tf32" ? "f32" : math}`);
    if (op !== "spmm") words.push(`--op ${op}`);
    if (["balanced", "2:4"].includes(pattern)) words.push(`--pattern ${pattern}`);
    else if (pattern !== "unstructured") words[0] = "nnzbench best MATRIX.npz";
    return words.join(" ");
  }

  // Per baseline in the order of the records: the nearest layer, or what is missing.
  function answers(asked, left) {
    return [...new Set(left.map((one) => one.baseline))].map((baseline) => ({ baseline, found: nearestLayer(left.filter((one) => one.baseline === baseline), asked) }));
  }

  const cell = (text, tag = "td") => {
    const one = document.createElement(tag);
    if (text instanceof Node) one.append(text); else one.textContent = text;
    return one;
  };
  const line = (texts, tag) => {
    const one = document.createElement("tr");
    one.append(...texts.map((text) => cell(text, tag)));
    return one;
  };
  const link = (point) => {
    const experiment = point.experiment;
    return Object.assign(document.createElement("a"), { textContent: experiment, href: `${data.gpus[point.gpu].slug}/${experiment}/README.md` });
  };
  const sizeOf = (point) => `${point.rows} × ${point.inner} × ${point.columns}, ${plots.digits(point.zeros, 4)} % zeros`;
  const us = (kernel, time) => `${kernel} ${plots.digits(time, 4)} µs`;

  // The estimate in words, those of the command.
  function estimate(asked) {
    const grids = data.gpus[field("gpu").value].estimates[field("math").value];
    const found = grids && field("op").value === "spmm" && field("pattern").value === "unstructured" ? estimatedLayer(data.points, grids, asked) : null;
    if (!found) return "";
    const { dense, sparse, verdict } = found, two = (value) => +value.toPrecision(2);
    const about = (one) => `${one.label}, about ${two(one.us)} µs${one.within === null ? "" : ` ± ${Math.round(100 * one.within)} %`}`;
    const wins = `dense wins (${about(dense)})`, best = sparse && about(sparse);
    const said = {
      sparse: () => `${sparse.label} is ${found.likely ? "probably " : ""}about ${two(dense.us / sparse.us)}× faster than ${dense.label} (${best}; ${about(dense)})`,
      dense: () => `${wins}; the best sparse takes ${two(sparse.us / dense.us)}× as long (${best})`,
      even: () => `about even (${about(dense)}; ${best})`,
      guess: () => `${wins}; ${sparse.label} may be faster, but that is a guess`,
      cold: () => `${wins}; ${sparse.label} is faster hot, and slower with its weights from memory`,
      far: () => `${wins}; no sparse kernel is recorded near`,
      "few zeros": () => `${wins}; no estimate below ${data.points.fewZeros} % zeros is certain of a sparse kernel`,
    };
    return `Estimated, ${found.policy === "stream" ? "weights streamed from memory" : "hot"}: ${said[verdict]()}.`;
  }
  const ratio = (one) => `${plots.times(one.ratio)}${one.tuned ? "" : "†"}`;

  function draw() {
    const left = fill(), asked = read();
    const [table, words, plot] = ["answers", "answer-words", "widths"].map(byId);
    for (const box of [table, plot]) box.replaceChildren();
    byId("estimate").textContent = asked ? estimate(asked) : "";
    byId("ask-command").textContent = asked ? command(asked) : "nnzbench best --help";
    if (!asked) {
      words.textContent = "Sizes are whole numbers from 1, zeros from 0 to below 100 %.";
      return;
    }
    const found = answers(asked, left);
    const known = found.filter((one) => one.found.ratio);
    if (!known.length) {
      words.textContent = `Not recorded: ${MISSING[found[0]?.found ?? "kind"]}.`;
      return;
    }
    const moved = (one) => ["rows", "inner", "columns"].some((name) => one[name] !== asked[name]) || Math.abs(one.zeros - asked.zeros) > 1;
    const others = known.map((one) => one.found).filter(moved);
    const elsewhere = others.length ? ` Recorded at ${[...new Set(others.map(sizeOf))].join(" and ")}, the nearest layer; nine in ten such answers are within the range.` : "";
    const range = (one) => (moved(one) ? ` (${plots.times(one.ratio / NEAR)} to ${plots.times(one.ratio * NEAR)} at yours)` : "");
    const said = (one) => `${ratio(one.found)} as fast as ${one.baseline}${range(one.found)}`;
    words.textContent = `Recorded: the best sparse kernel is ${known.map(said).join(", ")}.${known.some((one) => !one.found.tuned) ? " † A kernel was not fully tuned." : ""}${elsewhere}`;
    const body = document.createElement("tbody");
    for (const { baseline, found: one } of found) {
      body.append(line(one.ratio ? [baseline, ratio(one), sizeOf(one), us(one.kernel, one.us), us(one.baseline_kernel, one.baseline_us), link(one)] : [baseline, "–", MISSING[one], "", "", ""]));
    }
    const head = document.createElement("thead");
    const heads = ["baseline", "times as fast", "recorded of", "fastest sparse", "fastest baseline", "experiment"];
    head.append(line(heads, "th"));
    for (const row of body.rows) [...row.cells].forEach((one, at) => { one.dataset.label = heads[at]; });
    table.append(head, body);
    // the same matrix at the other widths recorded
    plots.widths(plot, known.map(({ baseline, found: point }) => ({
      label: baseline, size: `${point.rows} × ${point.inner}`,
      points: left.filter((one) => one.baseline === baseline && one.rows === point.rows && one.inner === point.inner && Math.abs(one.zeros - point.zeros) <= 1)
        .map((one) => [one.columns, one.ratio]).sort((a, b) => a[0] - b[0]),
    })).filter((curve) => curve.points.length > 1), Math.max(300, Math.min(760, plot.clientWidth)));
  }

  return { names: NAMES, field, fill, draw, answers };
};
