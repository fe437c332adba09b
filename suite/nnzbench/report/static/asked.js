"use strict";
// The part of the page that asks for a reader's own layer: its fields, and the tables and the plot that answer.
// `page` is {data, rows, byId, options, numbered} of index.js.
const askLayer = (page) => {
  const { data, rows, byId, options, numbered } = page;
  const OPS = { spmm: "sparse × dense (SpMM)", sddmm: "sampled dense × dense (SDDMM)" };
  const PATTERNS = { "": "any", balanced: "as many in every block of a row", "2:4": "2 of 4" };
  const products = rows.filter((row) => ["spmm", "spmv", "sddmm"].includes(row.problem.op) && row.problem.plain);
  const ASKED = ["op", "m", "k", "n", "zeros", "math", "pattern", "policy", "gpu"];
  const askedField = (name) => byId(`ask-${name}`);

  // What the fields hold; null where that is no layer.
  function readAsked() {
    const value = Object.fromEntries(ASKED.map((name) => [name, askedField(name).value]));
    const asked = { ...value, m: +value.m, k: +value.k, n: +value.n, zeros: +value.zeros / 100, policy: +value.policy, gpu: +value.gpu };
    if (asked.pattern === "2:4") asked.zeros = 0.5;
    const sized = [asked.m, asked.k, asked.n].every((size) => Number.isInteger(size) && size >= 1);
    return sized && value.zeros !== "" && asked.zeros >= 0 && asked.zeros < 1 ? asked : null;
  }

  // Choices that nothing is recorded for are named and can't be chosen.
  function fillAsked() {
    const choice = (name, pairs, has) => {
      const told = pairs.map(([key, text]) => [key, has(key) ? text : `${text} (not run here)`, !has(key)]);
      return options(askedField(name), told.length ? told : [["", "none recorded"]], askedField(name).value || pairs[0]?.[0]);
    };
    const gpu = choice("gpu", numbered(data.gpus.map((one) => one.name)), (key) => products.some((row) => row.set.gpu === +key));
    let left = products.filter((row) => row.set.gpu === +gpu);
    const op = choice("op", Object.entries(OPS), (key) => left.some((row) => row.problem.op === key));
    left = left.filter((row) => (row.problem.op === "sddmm") === (op === "sddmm"));
    const maths = ["f32", "f16", "bf16"].filter((math) => products.some((row) => row.series.math === math && !row.series.dense));
    const math = choice("math", maths.map((one) => [one, one]), (key) => left.some((row) => row.series.math === key && !row.series.dense));
    left = left.filter((row) => row.series.math === math);
    choice("pattern", Object.entries(PATTERNS), (key) => !key || left.some((row) => row.series.pattern === key));
    choice("policy", numbered(data.policies), (key) => left.some((row) => row.policy === +key));
  }

  function cells(texts, tag = "td") {
    const line = document.createElement("tr");
    line.append(...texts.map((text) => {
      const cell = document.createElement(tag);
      if (tag === "th") cell.scope = "col";
      if (text instanceof Node) cell.append(text); else cell.textContent = text;
      return cell;
    }));
    return line;
  }

  function fillTable(table, caption, names, lines) {
    const head = table.createTHead(), body = document.createElement("tbody");
    head.append(cells(names, "th"));
    for (const line of lines) {
      const row = cells(line);
      [...row.cells].forEach((cell, at) => { cell.dataset.label = names[at]; });
      body.append(row);
    }
    table.append(body);
    table.createCaption().textContent = caption;
  }

  const chip = (text, word) => Object.assign(document.createElement("span"), { textContent: text, className: `chip ${word}` });
  const sizeOf = (problem) => `${problem.m} × ${problem.k} × ${problem.n}`;
  const away = (octaves) => (octaves < 0.05 ? "this very size" : `${octaves.toFixed(1)} octaves`);

  const shortOf = (rival) => rival.label.split(",")[0];
  const inUs = (row) => `${row.series.label}, ${plots.digits(row.us, 4)}\u00a0µs`;

  function crossing(found, rival) {
    if (!found) return "one width recorded";
    if (found.n) return `${found.winner === "both" ? rival : "sparse"} faster from about N\u00a0=\u00a0${found.n}`;
    return `${found.winner === "sparse" ? "sparse" : rival} throughout (N\u00a0=\u00a0${found.least} to ${found.most})`;
  }

  // The command that measures or estimates what was asked; of a sampled product the matrix is M x N.
  function commandFor(asked) {
    const zeros = asked.zeros.toFixed(6).replace(/0+$/, "").replace(/\.$/, "");
    const [columns, n] = asked.op === "sddmm" ? [asked.n, asked.k] : [asked.k, asked.n];
    const words = ["nnzbench best", `${asked.m}x${columns}@${zeros}`, `--n ${n}`, `--dtype ${asked.math}`];
    if (asked.op !== "spmm") words.push(`--op ${asked.op}`);
    if (asked.pattern) words.push(`--pattern ${asked.pattern}`);
    return words.join(" ");
  }

  function drawNearest() {
    fillAsked();
    const asked = readAsked();
    const [byRival, near, words, plot] = ["by-rival", "nearest", "nearest-words", "crossover"].map(byId);
    for (const box of [byRival, near, plot]) box.replaceChildren();
    byId("ask-command").textContent = asked ? commandFor(asked) : "nnzbench best --help";
    if (!asked) {
      words.textContent = "Sizes are whole numbers from 1, zeros from 0 to below 100 %.";
      return;
    }
    const here = layer.able(asked, products.filter((row) => row.policy === asked.policy && row.set.gpu === asked.gpu));
    const rivals = layer.rivals(asked, here).map((rival) => ({ ...rival, found: layer.nearest(asked, here, rival, 6) })).filter((rival) => rival.found.length);
    if (!rivals.length) {
      words.textContent = "Nothing is recorded here with the times of both a rival and a sparse kernel.";
      return;
    }
    const curves = [];
    const lines = rivals.map((rival) => {
      const first = rival.found[0];
      const points = layer.widths({ ...asked, m: first.problem.m, k: first.problem.k }, here, rival);
      curves.push({ label: rival.label, problem: first.problem, points });
      const won = first.over >= 1;
      return [
        rival.label,
        chip(won ? "sparse" : shortOf(rival), won ? "yes" : "no"),
        plots.times(first.over),
        inUs(first.sparse),
        inUs(first.dense),
        `${sizeOf(first.problem)}, ${plots.percent(first.problem.level)}; ${away(first.octaves)}`,
        crossing(layer.crossover(points), shortOf(rival)),
      ];
    });
    const least = rivals[0].found[0];
    const won = rivals.filter((rival) => rival.found[0].over >= 1).map(shortOf);
    const lost = rivals.filter((rival) => rival.found[0].over < 1).map(shortOf);
    const verdict = [won.length ? `sparse is faster than ${won.join(", ")}` : "", lost.length ? `slower than ${lost.join(", ")}` : ""].filter(Boolean).join(", ");
    const guess = least.octaves > 3 ? "Nothing near is recorded, so this is a guess. " : "";
    const notes = [asked.op === "sddmm" ? " The pattern is M × N, the products have the length K." : "", asked.pattern === "2:4" ? " A 2:4 pattern has 50 % zeros." : ""];
    words.textContent = `${guess}On the nearest recorded problem (${sizeOf(least.problem)}, ${plots.percent(least.problem.level)} zeros: ${away(least.octaves)}${least.octaves < 0.05 ? "" : " away"}) ${won.length ? "" : "sparse is "}${verdict}.${notes.join("")}`;
    fillTable(byRival, "Against each rival, on the recorded problem nearest to yours that has both times. An octave is a factor of two in one size.",
      ["rival", "winner", "speed-up", "fastest sparse", "fastest rival", "nearest problem", "crossover"], lines);
    const places = new Map();
    for (const rival of rivals) for (const one of rival.found) if (!places.has(one.problem)) places.set(one.problem, one);
    const shown = [...places.values()].sort((a, b) => a.octaves - b.octaves).slice(0, 6);
    const over = new Map(rivals.map((rival) => [rival, new Map(layer.nearest(asked, here, rival, Infinity).map((one) => [one.problem, one]))]));
    fillTable(near, "The nearest recorded problems, and how many times as fast as each rival the fastest sparse kernel is on them.",
      ["recorded problem", "zeros", "octaves away", "fastest sparse", "µs", ...rivals.map(shortOf), "experiment"],
      shown.map((one) => [
        sizeOf(one.problem), plots.percent(one.problem.level), one.octaves.toFixed(1), one.sparse.series.label, plots.digits(one.sparse.us, 4),
        ...rivals.map((rival) => plots.times(over.get(rival).get(one.problem)?.over)),
        data.experiments[one.problem.set.experiment].name,
      ]));
    plots.crossover(plot, curves.filter((curve) => curve.points.length > 1), Math.max(300, Math.min(760, plot.clientWidth)));
  }

  return { names: ASKED, field: askedField, fill: fillAsked, draw: drawNearest };
};
