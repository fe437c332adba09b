"use strict";
window.ready = (async () => {
  // The data are compressed JSON (site/index/data.py); columns become rows.
  const letters = atob(document.getElementById("data").textContent);
  const packed = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  const data = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
  const byId = (id) => document.getElementById(id);
  const PAGE = 50;

  const unpack = (columns) => {
    const names = Object.keys(columns);
    return columns[names[0]].map((_, i) => {
      const one = {};
      for (const name of names) one[name] = columns[name][i];
      return one;
    });
  };
  data.series.forEach((series, i) => { series.colour = `var(--s${i})`; });
  const problems = unpack(data.problems);
  for (const one of problems) one.set = data.sets[one.set];
  const rows = unpack(data.rows);
  for (const row of rows) {
    row.problem = problems[row.problem];
    row.set = row.problem.set;
    row.gpu = data.gpus[row.set.gpu];
    row.series = data.series[row.series];
    row.policyName = data.policies[row.policy];
    row.variantName = data.variants[row.variant];
    row.q1 = row.below == null ? null : row.us - row.below;
    row.q3 = row.above == null ? null : row.us + row.above;
    row.gflops = row.problem.flops / row.us / 1e3;
  }
  const { words: layerWords, ...layerColumns } = data.layers;
  const layers = unpack(layerColumns);
  for (const one of layers) for (const name in layerWords) one[name] = layerWords[name][one[name]];
  const best = data.series[0];
  const bests = rows.filter((row) => row.best).map((row) => ({ ...row, series: best, bestOf: `${row.series.label}, ${row.variantName}` }));

  const state = { experiment: "0", gpu: "0", policy: "0", level: "", baseline: "0", axis: "share", hidden: new Set(), sort: "", down: false, shown: PAGE };

  // ---- filters

  function options(select, pairs, value) {
    select.replaceChildren(...pairs.map(([key, text, disabled]) => {
      const option = new Option(text, key);
      option.disabled = Boolean(disabled);
      return option;
    }));
    const open = pairs.filter(([, , disabled]) => !disabled).map(([key]) => key);
    select.value = open.includes(value) ? value : open[0] ?? pairs[0][0];
    return select.value;
  }

  const inSets = (set) => (state.experiment === "" || set.experiment === +state.experiment) && (state.gpu === "" || set.gpu === +state.gpu);
  const setsShown = () => data.sets.filter(inSets);
  const numbered = (names) => names.map((name, i) => [String(i), name]);

  function fillFilters() {
    const recorded = (gpu) => data.sets.some((set) => set.gpu === gpu && (state.experiment === "" || set.experiment === +state.experiment));
    state.experiment = options(byId("experiment"), [...numbered(data.experiments.map((one) => one.name)), ["", "all experiments"]], state.experiment);
    state.gpu = options(byId("gpu"), [...data.gpus.map((gpu, i) => [String(i), recorded(i) ? gpu.name : `${gpu.name} (not recorded yet)`]), ["", "all GPUs"]], state.gpu);
    const ran = (policy) => rows.some((row) => row.policy === policy && inSets(row.set));
    state.policy = options(byId("policy"), [...data.policies.map((name, i) => [String(i), ran(i) ? name : `${name} (not run here)`, !ran(i)]), ["", "all policies"]], state.policy);
    const levels = [...new Set(problems.filter((problem) => inSets(problem.set)).map((problem) => problem.level))].sort((a, b) => a - b);
    state.level = options(byId("level"), [["", "all levels"], ...levels.map((level) => [String(level), plots.percent(level)])], state.level);
    const offered = setsShown();
    state.baseline = options(byId("baseline"), data.baselines.map((text, i) => {
      const named = [...new Set(offered.map((set) => set.baselines[i]).filter(Boolean))];
      if (!named.length) return [String(i), `${text} (no time here)`, true];
      return [String(i), named.length === 1 ? (i ? `${text}: ${named[0]}` : named[0]) : text];
    }), state.baseline);
  }

  function fillKernels(candidates) {
    const present = data.series.filter((series) => candidates.some((row) => row.series === series));
    const box = byId("kernels");
    const focused = document.activeElement?.dataset?.series;
    box.replaceChildren(...present.map((series) => {
      const number = data.series.indexOf(series);
      const label = document.createElement("label");
      const input = document.createElement("input");
      input.type = "checkbox";
      input.checked = !state.hidden.has(number);
      input.dataset.series = number;
      input.addEventListener("change", () => {
        if (input.checked) state.hidden.delete(number); else state.hidden.add(number);
        state.shown = PAGE;
        draw();
      });
      label.append(input);
      label.insertAdjacentHTML("beforeend", plots.swatch(series));
      label.append(series.label);
      if (String(number) === focused) setTimeout(() => input.focus());
      return label;
    }));
    for (const [id, hide] of [["all", false], ["none", true]]) {
      byId(id).onclick = () => {
        present.forEach((series) => state.hidden[hide ? "add" : "delete"](data.series.indexOf(series)));
        draw();
      };
    }
  }

  const kinds = { gpu: { ...data.gpus.map((one) => one.name) }, math: { f32: "fp32", tf32: "TF32", f16: "fp16", bf16: "bf16" }, policy: { hot: "hot", cold: "cold" } };
  const own = askLayer({ data, layers, byId, options, kinds });
  const map = data.cells.layer.length ? payMap({ data, layers, rows, byId, options, kinds }) : null;
  const forms = Object.entries({ map, layer: own }).filter(([, form]) => form);

  const matches = (row) => inSets(row.set) && (state.policy === "" || row.policy === +state.policy) && (state.level === "" || row.problem.level === +state.level);
  const visible = (row) => !state.hidden.has(data.series.indexOf(row.series));

  // ---- plots

  const nameOf = (set, policy) => `${data.experiments[set.experiment].name}, ${data.gpus[set.gpu].name}, ${data.policies[policy]} policy`;

  const several = (set) => new Set(problems.filter((problem) => problem.set === set).map((problem) => problem.op)).size > 1;

  // Geometric means of the facts by kernel and level.
  const meansOf = (selected) => d3.flatGroup(selected, (row) => row.series, (row) => row.problem.level).map(([series, level, mine]) => {
    const known = mine.map((row) => row.over).filter((over) => over != null);
    return { series, level, mean: Math.exp(d3.mean(known, Math.log)), count: known.length, wins: known.filter((over) => over > 1).length, of: mine.length };
  }).filter((mean) => mean.count);

  // What one plot can hold without mixing: one recording, operation, policy and, where asked, level.
  function panelsOf(selected, byLevel) {
    const found = new Map();
    for (const row of selected) {
      const key = [data.sets.indexOf(row.set), row.problem.op, row.policy, byLevel ? row.problem.level : ""].join("|");
      if (!found.has(key)) found.set(key, { set: row.set, op: row.problem.op, policy: row.policy, level: byLevel ? row.problem.level : null, rows: [] });
      found.get(key).rows.push(row);
    }
    return [...found.values()].sort((a, b) => data.sets.indexOf(a.set) - data.sets.indexOf(b.set) || d3.ascending(a.op, b.op) || a.policy - b.policy || a.level - b.level).map((panel) => ({
      ...panel,
      gpu: data.gpus[panel.set.gpu],
      baseline: panel.set.baselines[+state.baseline] ?? data.baselines[+state.baseline],
      paper: state.baseline === "0" ? panel.set.paper : "",
      title: nameOf(panel.set, panel.policy) + (several(panel.set) ? `, ${panel.op}` : "") + (panel.level == null ? "" : `, ${plots.percent(panel.level)} zeros`),
      means: meansOf(panel.rows),
    }));
  }

  function drawPlots(selected) {
    const width = Math.max(300, Math.min(1148, byId("overview").clientWidth));
    const [overview, perProblem, roofline] = ["overview", "problems", "roofline"].map(byId);
    for (const box of [overview, perProblem, roofline]) box.replaceChildren();
    if (!selected.length) return [overview, perProblem, roofline].forEach((box) => plots.words(box, emptiness()));
    if (state.experiment === "") {
      for (const box of [overview, perProblem]) plots.words(box, "Choose one experiment: means over several would mix baselines.");
    } else {
      const levels = new Set(selected.map((row) => row.problem.level));
      for (const panel of panelsOf(selected, levels.size <= 3)) (levels.size <= 3 ? plots.strip : plots.lines)(overview, panel, width);
      for (const panel of panelsOf(selected, levels.size <= 3)) plots.perProblem(perProblem, panel, width);
    }
    const grouped = d3.group(selected, (row) => row.gpu, (row) => row.policy);
    for (const [gpu, policies] of grouped) {
      for (const [policy, mine] of policies) {
        const what = state.experiment === "" ? "all experiments" : data.experiments[+state.experiment].name;
        plots.roofline(roofline, { gpu, rows: mine, title: `${what}, ${gpu.name}, ${data.policies[policy]} policy` }, width, state.axis);
      }
    }
  }

  function emptiness() {
    if (!setsShown().length) return `${data.experiments[+state.experiment].name} on ${data.gpus[+state.gpu].name}: not recorded yet.`;
    return "No row is left: choose kernels, or another policy or level.";
  }

  // ---- table

  const COLUMNS = [
    ["problem", (row) => `${row.problem.label}: ${row.problem.size}`, (row) => row.problem.set.experiment * 1e6 + row.row],
    ["kernel", (row) => row.series.label],
    ["over", (row) => plots.times(row.over), (row) => row.over],
    ["µs", (row) => plots.digits(row.us, 4), (row) => row.us],
    ["quartiles (µs)", (row) => (row.q1 == null ? "–" : `${plots.digits(row.q1, 4)}–${plots.digits(row.q3, 4)}`), (row) => row.q1],
    ["of its roofline", (row) => (row.share == null ? "–" : `${plots.digits(100 * row.share, 3)} %`), (row) => row.share],
    ["useful GFLOP/s", (row) => plots.digits(row.gflops, 4), (row) => row.gflops],
    ["operation", (row) => row.problem.op],
    ["zeros", (row) => plots.percent(row.problem.level), (row) => row.problem.level],
    ["policy", (row) => row.policyName],
    ["variant", (row) => row.variantName],
    ["relative error", (row) => (row.error == null ? "–" : row.error.toExponential(1)), (row) => row.error],
    ["GPU", (row) => row.gpu.name],
    ["experiment", (row) => data.experiments[row.set.experiment].name],
  ];
  rows.forEach((row, i) => { row.row = i; });

  function drawTable(selected) {
    const baseline = data.baselines[+state.baseline];
    const named = [...new Set(selected.map((row) => row.set.baselines[+state.baseline]).filter(Boolean))];
    const over = named.length === 1 ? named[0] : baseline;
    byId("tablecaption").textContent = `Medians of checked rows. Speed-up: over ${over}, same problem and policy, on the same GPU. Press a heading to sort.`;
    const head = document.createElement("tr");
    head.append(...COLUMNS.map(([name, , value]) => {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.className = value && name !== "problem" ? "number" : "";
      const current = state.sort === name;
      cell.setAttribute("aria-sort", current ? (state.down ? "descending" : "ascending") : "none");
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name === "over" ? "speed-up" : name;
      button.addEventListener("click", () => {
        const numeric = Boolean(value) && name !== "problem";
        [state.sort, state.down] = current ? [name, !state.down] : [name, numeric];
        state.shown = PAGE;
        draw();
        [...byId("rows").tHead.querySelectorAll("button")].find((one) => one.textContent === button.textContent)?.focus();
      });
      cell.append(button);
      return cell;
    }));
    byId("rows").tHead.replaceChildren(head);
    const column = COLUMNS.find(([name]) => name === state.sort);
    const sorted = [...selected];
    if (column) {
      const value = column[2] ?? column[1];
      const order = state.down ? d3.descending : d3.ascending;
      sorted.sort((a, b) => (value(a) == null) - (value(b) == null) || order(value(a), value(b)) || a.row - b.row);
    }
    byId("rows").tBodies[0].replaceChildren(...sorted.slice(0, state.shown).map((row) => {
      const line = document.createElement("tr");
      line.append(...COLUMNS.map(([name, text, value]) => {
        const cell = document.createElement("td");
        cell.textContent = text(row);
        cell.className = value && name !== "problem" ? "number" : "";
        return cell;
      }));
      return line;
    }));
    byId("more").hidden = sorted.length <= state.shown;
    byId("more").textContent = `Show more rows (${Math.min(state.shown, sorted.length)} of ${sorted.length} shown)`;
  }

  // ---- the page

  function links() {
    const box = byId("pagelinks");
    box.replaceChildren(...setsShown().flatMap((set, i) => {
      const gpu = data.gpus[set.gpu], name = data.experiments[set.experiment];
      const link = document.createElement("a");
      link.href = `${gpu.slug}/${name.name}/README.md`;
      link.textContent = `page of ${name.name} on ${gpu.name}`;
      return i ? [", ", link] : [name.title && state.experiment !== "" ? `${name.title}: ` : "", link];
    }));
  }

  function draw() {
    fillFilters();
    const over = `over${state.baseline}`;
    const candidates = [...bests, ...rows].filter(matches);
    fillKernels(candidates);
    const selected = candidates.filter(visible).map((row) => ({ ...row, over: row[over] }));
    const plain = selected.filter((row) => row.series !== best);
    byId("status").textContent = setsShown().length ? `${plain.length} rows of ${new Set(plain.map((row) => row.problem)).size} problems.` : emptiness();
    links();
    drawPlots(selected);
    drawTable(plain);
  }

  function change() {
    draw();
    remember();
  }

  const KEYS = ["experiment", "gpu", "policy", "level", "baseline", "axis"];
  const NAMES = { experiment: () => data.experiments.map((one) => one.name), gpu: () => data.gpus.map((one) => one.slug), policy: () => data.policies };

  // The address keeps the filters, by name, so that a view can be linked.
  function remember() {
    const words = new URLSearchParams(KEYS.map((key) => [key, NAMES[key] && state[key] !== "" ? NAMES[key]()[+state[key]] : state[key]]));
    for (const [of, form] of forms) {
      for (const name of form.names) words.set(`${of}-${name}`, name === "gpu" ? NAMES.gpu()[+form.field(name).value] : form.field(name).value);
    }
    try { history.replaceState(null, "", `#${words}`); } catch { /* not allowed for some local files */ }
  }

  function recall() {
    if (!location.hash.includes("=")) return;
    for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
      for (const [of, form] of forms) {
        const field = form.names.find((name) => key === `${of}-${name}`);
        if (!field) continue;
        const place = field === "gpu" ? String(NAMES.gpu().indexOf(value)) : value;
        const element = form.field(field);
        if (element.tagName === "INPUT" || [...element.options].some((one) => one.value === place && !one.disabled)) element.value = place;
        form.fill(); // each choice offers what is recorded of those before it
      }
      if (!KEYS.includes(key)) continue;
      const at = NAMES[key] ? NAMES[key]().indexOf(value) : -1;
      state[key] = NAMES[key] && value !== "" ? (at < 0 ? state[key] : String(at)) : value;
    }
    if (!["share", "gflops"].includes(state.axis)) state.axis = "share";
    byId("roofline-axis").value = state.axis;
  }

  for (const id of ["experiment", "gpu", "policy", "level", "baseline"]) {
    byId(id).addEventListener("change", (event) => {
      state[id] = event.target.value;
      state.shown = PAGE;
      change();
    });
  }
  byId("roofline-axis").addEventListener("change", (event) => { state.axis = event.target.value; change(); });
  byId("more").addEventListener("click", () => { state.shown += 10 * PAGE; draw(); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());

  const theme = byId("theme");
  const wear = (value) => { if (value) document.documentElement.dataset.theme = value; else delete document.documentElement.dataset.theme; };
  try { theme.value = localStorage.getItem("nnzbench-theme") ?? ""; } catch { /* storage is off */ }
  wear(theme.value);
  theme.addEventListener("change", () => {
    wear(theme.value);
    try { localStorage.setItem("nnzbench-theme", theme.value); } catch { /* storage is off */ }
  });

  // What is folded would be missing on paper.
  const folded = [];
  window.addEventListener("beforeprint", () => document.querySelectorAll("main details:not([open])").forEach((one) => { one.open = true; folded.push(one); }));
  window.addEventListener("afterprint", () => folded.splice(0).forEach((one) => { one.open = false; }));

  if (!rows.length) {
    byId("status").textContent = "Nothing is recorded yet.";
    byId("filters").hidden = true;
    byId("layer").hidden = true;
    return;
  }
  const drawAll = () => { for (const [, form] of forms) form.draw(); draw(); };
  for (const element of map?.inputs ?? []) element.addEventListener("change", () => { map.draw(); remember(); });
  for (const element of byId("asked").querySelectorAll("input, select")) element.addEventListener("input", () => { own.draw(); remember(); });
  byId("asked").addEventListener("submit", (event) => event.preventDefault());
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    own.draw();
    draw();
  });
  window.addEventListener("hashchange", () => { if (location.hash.includes("=")) { recall(); drawAll(); } });
  for (const [, form] of forms) form.fill();
  recall();
  map?.draw(); // first: it is what the page opens with
  performance.mark("map");
  await new Promise((done) => { setTimeout(done); });
  own.draw();
  draw();
  return { data, layers, answers: own.answers };
})();
