"use strict";
// The map: one button for each measured cell, in the tables that the page brings empty; a press tells of the kernels.
// `page` is {data, layers, rows, byId, options, kinds} of index.js. Cells and ratios are those of facts/cells.py.
const payMap = (page) => {
  const { data, layers, rows, byId, options, kinds } = page;
  const NAMES = ["gpu", "math", "policy"];
  const OTHER = { hot: "cold", cold: "hot" };
  const field = (name) => byId(`map-${name}`);
  const panels = [...document.querySelectorAll("#map .panel")].map((box) => ({
    box, table: box.querySelector("table"), size: box.querySelector("select"), missing: box.querySelector(".missing"),
  }));
  const told = byId("cell");
  const cells = data.cells.layer.map((at, i) => ({ ...layers[at], line: data.cells.line[i], level: data.zeros[data.cells.line[i]], panel: data.cells.panel[i] }));
  const sizeOf = (one) => `${one.rows} × ${one.inner}`;
  const step = (ratio) => data.steps.filter((one) => ratio >= one).length;
  const nameOf = (one) => (one.ratio < 1 ? "dense" : data.names[one.kernel]);
  const mark = (tuned) => (tuned ? "" : data.mark);
  const text = (tag, words, more = {}) => Object.assign(document.createElement(tag), { textContent: words, ...more });

  // The GPU that the page opens with: of those with cells of the map's own sizes the most fully recorded one.
  const own = cells.filter((one) => one.math === "f16" && sizeOf(one) === data.homes[one.panel]);
  const first = String(d3.min(own, (one) => one.gpu) ?? 0);

  // Each choice offers what is recorded of those before it.
  function fill() {
    let left = cells;
    for (const name of NAMES) {
      const words = kinds[name];
      const present = [...new Set(left.map((one) => String(one[name])))].sort((a, b) => Object.keys(words).indexOf(a) - Object.keys(words).indexOf(b));
      const wanted = field(name).value || { gpu: first, math: "f16", policy: "hot" }[name];
      options(field(name), present.map((key) => [key, words[key] ?? key]), present.includes(wanted) ? wanted : present[0]);
      left = left.filter((one) => String(one[name]) === field(name).value);
    }
    return left;
  }

  // Recorded matrices of a panel, the largest first; the map's own stands for it, or the one with most cells.
  function choose(panel, mine, at) {
    const count = d3.rollup(mine, (some) => some.length, sizeOf);
    const sizes = [...new Map(mine.map((one) => [sizeOf(one), one])).values()].sort((a, b) => b.rows * b.inner - a.rows * a.inner);
    const most = d3.greatest(sizes, (one) => count.get(sizeOf(one)));
    const home = data.homes[at];
    const wanted = count.has(panel.size.value) ? panel.size.value : count.has(home) ? home : most && sizeOf(most);
    panel.table.hidden = panel.size.hidden = !sizes.length;
    panel.missing.hidden = Boolean(sizes.length);
    if (sizes.length) options(panel.size, sizes.map((one) => [sizeOf(one), sizeOf(one)]), wanted);
    return mine.filter((one) => sizeOf(one) === panel.size.value);
  }

  function button(one, letter) {
    const box = text("button", "", { type: "button", tabIndex: -1, className: `m${step(one.ratio)}` });
    const maths = kinds.math[one.math] ?? one.math;
    box.title = `${data.names[one.kernel]} ${plots.times(one.ratio)} as fast as the best dense ${maths}: ${one.level} % zeros, ${one.columns} columns${one.tuned ? "" : ", not fully tuned"}`;
    for (const [name, value] of Object.entries({ label: box.title, expanded: "false", controls: "cell" })) box.setAttribute(`aria-${name}`, value);
    box.append(text("b", one.ratio.toFixed(one.ratio < 9.995 ? 2 : 1)), text("i", mark(one.tuned)), text("span", nameOf(one)), text("abbr", letter));
    box.addEventListener("click", () => open(one, box));
    return box;
  }

  function draw() {
    close();
    const left = fill();
    const shown = panels.map((panel, at) => choose(panel, left.filter((one) => one.panel === at), at));
    // on narrow screens a letter stands for a name
    const winners = [...d3.rollup(shown.flat().filter((one) => one.ratio >= 1), (some) => some.length, nameOf)].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    const letter = (one) => (one.ratio < 1 ? "" : String.fromCharCode(65 + winners.indexOf(nameOf(one)) % 26));
    byId("letters").replaceChildren(...winners.flatMap((name, at) => [text("b", String.fromCharCode(65 + at % 26)), ` ${name}  `]));
    byId("map-untuned").hidden = shown.flat().every((one) => one.tuned);
    panels.forEach(({ table }, at) => {
      const lines = [...table.tBodies[0].rows];
      const faster = new Map(shown[at].map((one) => [`${one.line} ${one.columns}`, one.ratio >= 1]));
      const differs = (one, line, columns) => faster.has(`${line} ${columns}`) && faster.get(`${line} ${columns}`) !== (one.ratio >= 1);
      for (const cell of table.querySelectorAll("td")) { cell.replaceChildren(); cell.className = ""; }
      for (const one of shown[at]) {
        const place = data.widths.indexOf(one.columns);
        const cell = lines[lines.length - 1 - one.line].cells[1 + place];
        cell.append(button(one, letter(one)));
        cell.classList.toggle("beside", differs(one, one.line, data.widths[place + 1])); // the line at 1
        cell.classList.toggle("below", differs(one, one.line - 1, one.columns));
      }
      const first = table.querySelector("td button");
      if (first) first.tabIndex = 0;
    });
  }

  function close() {
    told.hidden = true;
    byId("map").querySelector("[aria-expanded=true]")?.setAttribute("aria-expanded", "false");
  }

  // The rows of a cell's own problem, or of the same size and zeros in other experiments, with kernels that its own left out.
  const nameOfSet = (row) => data.experiments[row.set.experiment].name;
  const alike = (row, one) => row.set.gpu === one.gpu && row.series.work
    && (row.series.math === one.math || (one.math === "tf32" && row.series.math === "f32" && row.series.work === "sparse"));
  const kernelsOf = (one) => {
    const own = rows.filter((row) => row.problem.name === one.problem && nameOfSet(row) === one.experiment && alike(row, one));
    const known = new Set(own.map((row) => row.series));
    const size = `${one.rows}×${one.inner}×${one.columns}`;
    const others = rows.filter((row) => row.problem.size === size && row.problem.op === "spmm" && Math.abs(100 * row.problem.level - one.level) < 1e-6
      && nameOfSet(row) !== one.experiment && !/_(mag|2of4)$/.test(row.problem.label) && !known.has(row.series) && alike(row, one));
    return [...own, ...others];
  };

  // What stands behind a cell: every kernel that competes, with both times, and the command.
  function open(one, box) {
    const again = box.getAttribute("aria-expanded") === "true";
    close();
    if (again) return;
    box.setAttribute("aria-expanded", "true");
    const other = layers.find((layer) => layer.problem === one.problem && layer.gpu === one.gpu && layer.experiment === one.experiment
      && layer.math === one.math && layer.baseline === one.baseline && layer.policy === OTHER[one.policy]);
    const ratio = (layer, words) => `${plots.times(layer.ratio)}${mark(layer.tuned)}${words} ${layer.policy}`;
    const of = `${sizeOf(one)} with ${one.level} % zeros × ${one.columns} column${one.columns > 1 ? "s" : ""}, ${kinds.math[one.math] ?? one.math}`;
    const said = `${data.names[one.kernel]}, the fastest sparse kernel, against ${data.names[one.baseline_kernel]}, the best dense product: ${ratio(one, " as fast")}${other ? `, ${ratio(other, "")}` : ""}.`;
    const times = d3.groups(kernelsOf(one), (row) => row.series).map(([series, mine]) => ({ series, ...Object.fromEntries(mine.map((row) => [row.policyName, row])) }));
    times.sort((a, b) => (a[one.policy]?.us ?? Infinity) - (b[one.policy]?.us ?? Infinity));
    const table = text("table", "");
    const line = (tag, words) => { const row = text("tr", ""); row.append(...words.map((word) => text(tag, word))); return row; };
    const time = (row) => (row ? `${plots.digits(row.us, 4)}${mark(row.tuned)}` : "–");
    table.createTHead().append(line("th", ["kernel", "hot, µs", "cold, µs", "variant"]));
    table.createTBody().append(...times.map((row) => {
      const shown = row[one.policy] ?? row.hot ?? row.cold ?? row.stream;
      const away = nameOfSet(shown) === one.experiment ? "" : ` (${nameOfSet(shown)})`;
      const made = line("td", [`${row.series.label}${row.series.work === "dense" ? " (dense)" : ""}${away}`, time(row.hot), time(row.cold), shown.variantName]);
      made.className = row.series.work + (away && " elsewhere");
      return made;
    }));
    const problem = /^[\w.:-]+$/.test(one.problem) ? one.problem : `'${one.problem.replaceAll("'", "'\\''")}'`;
    const where = `${data.gpus[one.gpu].slug}/${one.experiment}`;
    const command = text("p", "Measure it again: ");
    command.append(text("code", `nnzbench run ${one.experiment} --problem ${problem}`), ". Recorded in ", text("a", `reports/${where}`, { href: `${where}/README.md` }), ".");
    const scroll = text("div", "", { className: "scroll", tabIndex: 0 });
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", `Kernels of ${of}`);
    scroll.append(table);
    told.replaceChildren(text("h4", of), text("p", said), scroll, command);
    if (times.some((row) => [row.hot, row.cold].some((found) => found && !found.tuned))) told.append(text("p", `${data.mark} Not fully tuned: the run ended before its kernel's last candidate.`, { className: "note" }));
    box.closest(".panel").append(told);
    told.hidden = false;
  }

  // Arrows lead to the next measured cell that way.
  const WAYS = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  byId("map").addEventListener("keydown", (event) => {
    const way = WAYS[event.key], from = event.target.closest("td");
    if (event.key === "Escape") close();
    if (!way || !from) return;
    event.preventDefault();
    const lines = from.closest("tbody").rows;
    for (let y = from.parentElement.sectionRowIndex + way[0], x = from.cellIndex + way[1]; lines[y]?.cells[x]; y += way[0], x += way[1]) {
      const next = lines[y].cells[x].querySelector("button");
      if (!next) continue;
      event.target.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      break;
    }
  });

  return { names: NAMES, field, fill, draw, inputs: [...NAMES.map(field), ...panels.map((one) => one.size)] };
};
