"use strict";
// The part of the page that asks for a reader's own layer: its fields, and the table and the plot that answer.
// `page` is {data, layers, byId, options, kinds} of index.js; a layer has the columns of facts/nearby.py.
const askLayer = (page) => {
  const { data, layers, byId, options, kinds } = page;
  const KIND = { op: "spmm", math: "f16", pattern: "unstructured", policy: "hot" };
  const OPS = { spmm: "sparse × dense (SpMM)", spmv: "sparse × vector (SpMV)", sddmm: "sampled dense × dense (SDDMM)" };
  const NAMES = ["gpu", ...Object.keys(KIND), "rows", "inner", "columns", "zeros"];
  const field = (name) => byId(`ask-${name}`);
  const MISSING = {
    kind: "no such product is recorded on this GPU",
    size: "no matrix within a factor of two of its rows and inner size is recorded",
    columns: "no such widths within a factor of two on both sides of it are recorded",
    zeros: "no such zeros within 5 points on both sides of them are recorded",
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

  // Per baseline in the order of the records: what `nearby` finds.
  function answers(asked, left) {
    return [...nearby.group(left, (one) => one.baseline)].map(([baseline, points]) => ({ baseline, found: nearby.answer(points, asked) }));
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
  const ratio = (one) => `${plots.times(one.ratio)}${one.tuned ? "" : "†"}`;

  function draw() {
    const left = fill(), asked = read();
    const [table, words, plot] = ["answers", "answer-words", "widths"].map(byId);
    for (const box of [table, plot]) box.replaceChildren();
    byId("ask-command").textContent = asked ? command(asked) : "nnzbench best --help";
    if (!asked) {
      words.textContent = "Sizes are whole numbers from 1, zeros from 0 to below 100 %.";
      return;
    }
    const found = answers(asked, left);
    const known = found.filter((one) => one.found.ratio);
    if (!known.length) {
      words.textContent = `Not known: ${MISSING[found[0]?.found ?? "kind"]}. Measure it:`;
      return;
    }
    const from = known.map((one) => layers[one.found.points[0]]).filter((one) => one.rows !== asked.rows || one.inner !== asked.inner);
    const sizes = [...new Set(from.map((one) => `${one.rows} × ${one.inner}`))];
    const elsewhere = sizes.length ? ` Recorded at ${sizes.join(" and ")}, the nearest size: at yours it may be otherwise.` : "";
    const said = (one) => `${ratio(one.found)} as fast as ${one.baseline}`;
    words.textContent = `The best sparse kernel is ${known.map(said).join(", ")}.${known.some((one) => !one.found.tuned) ? " † A kernel was not fully tuned." : ""}${elsewhere}`;
    const body = document.createElement("tbody");
    for (const one of found) {
      const points = (one.found.points ?? []).map((at) => layers[at]);
      const how = points.length > 1 ? "between" : "recorded";
      if (!points.length) body.append(line([one.baseline, "–", MISSING[one.found], "", "", ""]));
      points.forEach((point, at) => body.append(line([
        at ? "" : one.baseline, at ? "" : ratio(one.found), `${how}: ${sizeOf(point)}`, us(point.kernel, point.us), us(point.baseline_kernel, point.baseline_us), link(point),
      ])));
    }
    const head = document.createElement("thead");
    const heads = ["baseline", "times as fast", "from", "fastest sparse", "fastest baseline", "experiment"];
    head.append(line(heads, "th"));
    for (const row of body.rows) [...row.cells].forEach((one, at) => { one.dataset.label = heads[at]; });
    table.append(head, body);
    // the same matrix at the other widths recorded
    const curves = known.map((one) => ({ ...one, point: layers[one.found.points[0]] }));
    plots.widths(plot, curves.map(({ baseline, point }) => ({
      label: baseline, size: `${point.rows} × ${point.inner}`,
      points: left.filter((one) => one.baseline === baseline && one.rows === point.rows && one.inner === point.inner && Math.abs(one.zeros - point.zeros) <= 1)
        .map((one) => [one.columns, one.ratio]).sort((a, b) => a[0] - b[0]),
    })).filter((curve) => curve.points.length > 1), Math.max(300, Math.min(760, plot.clientWidth)));
  }

  return { names: NAMES, field, fill, draw, answers };
};
