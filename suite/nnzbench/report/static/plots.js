"use strict";
// Draws rows that index.js has filtered. All numbers come from the page's data; nothing is computed but positions.
const plots = (() => {
  const FONT = { fontSize: "12px", fontFamily: "system-ui, sans-serif" };
  const TOO_MANY = 60; // problems that are still listed one by one
  const digits = (value, count = 3) => (value == null ? "–" : String(+value.toPrecision(count)));
  const times = (value) => (value == null ? "–" : `${value.toFixed(2)}×`);
  const percent = (level) => `${digits(100 * level, 4)} %`;

  const symbol = (series) => ({
    draw(context, size) {
      const scale = 1.15 * Math.sqrt(size);
      series.shape.forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](x * scale, y * scale));
      context.closePath();
    },
  });

  const dots = (rows, series, x, y, size = 5) =>
    Plot.dot(rows.filter((row) => row.series === series), {
      x, y, r: size, symbol: symbol(series),
      fill: series.hollow ? "var(--ground)" : series.colour,
      stroke: series.hollow ? series.colour : "var(--ink)",
      strokeWidth: series.hollow ? 1.8 : 0.6,
      clip: false,
    });

  function swatch(series) {
    const reach = Math.max(0.5, ...series.shape.flat().map(Math.abs)); // a diamond's corners are further out
    const scale = 7 / reach;
    const path = series.shape.map(([x, y]) => `${8 + x * scale},${8 + y * scale}`).join(" ");
    const fill = series.hollow ? "var(--ground)" : series.colour;
    const edge = series.hollow ? series.colour : "var(--ink)";
    const width = series.hollow ? 1.8 : 0.6;
    return `<svg class="swatch" width="16" height="16" aria-hidden="true"><polygon points="${path}" style="fill:${fill};stroke:${edge};stroke-width:${width}"/></svg>`;
  }

  // `told` is the plot in words, for those who don't see it.
  function figure(into, title, svg, caption, told) {
    const box = document.createElement("figure");
    const heading = document.createElement("h4");
    heading.textContent = title;
    const note = document.createElement("figcaption");
    note.textContent = caption;
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${title}. ${caption} ${told}`);
    box.append(heading, svg, note);
    into.append(box);
  }

  function words(into, text) {
    const note = document.createElement("p");
    note.className = "note";
    note.textContent = text;
    into.append(note);
  }

  const seriesOf = (rows) => [...new Set(rows.map((row) => row.series))];
  const unit = (value) => `${digits(value)}×`;
  const logAxis = (values, label, extra = {}) => ({
    type: "log", base: 2, label, grid: true, tickFormat: unit,
    domain: [Math.min(0.5, 0.9 * d3.min(values)), Math.max(2, 1.1 * d3.max(values))], ...extra,
  });
  const tip = (rows, x, y, title) =>
    Plot.tip(rows, Plot.pointer({ x, y, title, maxRadius: 30, fontSize: 12, lineWidth: 22, fill: "var(--ground)", stroke: "var(--ink)" }));
  const describe = (row) =>
    [`${row.series.label}: ${times(row.over)}`, `problem ${row.problem.label}, ${row.problem.size}`,
      `${percent(row.problem.level)} zeros, ${row.policyName}, ${row.gpu.name}`,
      `${digits(row.us, 4)} µs, ${row.series.kernel === "best" ? row.bestOf : row.variantName}`,
      row.share == null ? "" : `${digits(100 * row.share)} % of its roofline`].filter(Boolean).join("\n");

  // One row per kernel, one mark per problem, the geometric mean as a bar with its number.
  function strip(into, panel, width) {
    const rows = panel.rows.filter((row) => row.over != null);
    if (!rows.length) return words(into, `${panel.title}: no speed-up over ${panel.baseline}, which has no time there.`);
    const order = new Map(panel.means.map((mean) => [mean.series, mean.mean]));
    const shown = seriesOf(rows).sort((a, b) => (b.kernel === "best") - (a.kernel === "best") || order.get(b) - order.get(a));
    const name = (series) => series.label;
    const means = panel.means.filter((mean) => shown.includes(mean.series));
    const svg = Plot.plot({
      width, height: 46 + (width < 560 ? 42 : 30) * shown.length, marginLeft: width < 560 ? 118 : 210, marginRight: 92, marginTop: 8, marginBottom: 36, style: FONT,
      x: logAxis(rows.map((row) => row.over), "speed-up (log) →", width < 560 ? { ticks: 4 } : {}),
      y: { type: "band", domain: shown.map(name), label: null },
      marks: [
        Plot.axisY({ lineWidth: width < 560 ? 9 : 17, tickSize: 0 }),
        Plot.ruleX([1], { stroke: "var(--ink)" }),
        ...shown.map((series) => dots(rows, series, "over", (row) => row.series.label, 4)),
        Plot.tickX(means, { x: "mean", y: (mean) => mean.series.label, stroke: "var(--ink)", strokeWidth: 3 }),
        Plot.text(means, { y: (mean) => mean.series.label, frameAnchor: "right", textAnchor: "start", dx: 8, fill: "var(--ink)", text: (mean) => `${times(mean.mean)} ${mean.wins}/${mean.count}` }),
        tip(rows, "over", (row) => row.series.label, describe),
      ],
    });
    const best = means.map((mean) => `${mean.series.label} ${times(mean.mean)} (above 1× on ${mean.wins} of ${mean.count}${mean.count < mean.of ? `, ${mean.of - mean.count} without a baseline` : ""})`);
    figure(into, panel.title, svg,
      `Speed-up over ${panel.baseline}. One mark per problem; bar and number: geometric mean, and problems above 1× of those with both times.`, `${best.join("; ")}.`);
  }

  // For many sparsity levels: geometric mean against the level.
  function lines(into, panel, width) {
    const means = panel.means;
    if (!means.length) return words(into, `${panel.title}: no speed-up over ${panel.baseline}, which has no time there.`);
    const shown = seriesOf(means);
    const svg = Plot.plot({
      width, height: 340, marginLeft: 52, marginRight: 20, marginBottom: 40, style: FONT,
      x: { label: "zeros (%) →", grid: true, type: "linear", transform: (level) => 100 * level, ticks: width < 560 ? 5 : 10, tickFormat: (level) => String(Number(level.toFixed(2))) },
      y: logAxis(means.map((mean) => mean.mean), "↑ speed-up, geometric mean (log)"),
      marks: [
        Plot.ruleY([1], { stroke: "var(--ink)" }),
        ...shown.map((series) => Plot.line(means.filter((mean) => mean.series === series), { x: "level", y: "mean", sort: "level", stroke: series.colour, strokeWidth: 2, strokeDasharray: series.hollow ? "5 3" : null })),
        ...shown.map((series) => dots(means, series, "level", "mean")),
        tip(means, "level", "mean", (mean) => `${mean.series.label}: ${times(mean.mean)}\n${percent(mean.level)} zeros, ${mean.wins} of ${mean.count} problems above 1×`),
      ],
    });
    const last = d3.max(means, (mean) => mean.level);
    const text = means.filter((mean) => mean.level === last).map((mean) => `${mean.series.label} ${times(mean.mean)}`);
    figure(into, panel.title, svg, `Speed-up over ${panel.baseline} against the share of zeros, geometric mean per level.`, `At ${percent(last)}: ${text.join("; ")}.`);
  }

  function perProblem(into, panel, width) {
    const rows = panel.rows.filter((row) => row.over != null && row.series.kernel !== "best");
    if (!rows.length) return words(into, `${panel.title}: no speed-up over ${panel.baseline}, which has no time there.`);
    const problems = [...new Set(rows.map((row) => row.problem))];
    const shown = seriesOf(rows);
    const many = problems.length > TOO_MANY;
    const narrow = width < 560;
    const paper = panel.paper && !many ? problems.filter((problem) => problem.paper != null) : [];
    const name = (problem) => (narrow ? `${problem.label}: ${problem.size}`.replace(/, /g, ",\n") : `${problem.label}: ${problem.size}`);
    const values = [...rows.map((row) => row.over), ...paper.map((problem) => problem.paper)];
    const svg = many
      ? Plot.plot({
        width, height: 420, marginLeft: 52, marginRight: 16, marginBottom: 40, style: FONT,
        x: { type: "log", label: "nonzeros (log) →", grid: true, tickFormat: "~s", ticks: narrow ? 4 : 8 },
        y: logAxis(values, "↑ speed-up (log)"),
        marks: [Plot.ruleY([1], { stroke: "var(--ink)" }),
          ...shown.map((series) => dots(rows, series, (row) => row.problem.nnz, "over", 3)),
          tip(rows, (row) => row.problem.nnz, "over", describe)],
      })
      : Plot.plot({
        width, height: 50 + 24 * problems.length, marginLeft: narrow ? 112 : 190, marginRight: 16, marginTop: 8, marginBottom: 36, style: FONT,
        x: logAxis(values, "speed-up (log) →", narrow ? { ticks: 4 } : {}),
        y: { type: "band", domain: problems.map(name), label: null },
        marks: [
          Plot.barX(problems.filter((_, i) => i % 2 === 0), { y: name, x1: values.length ? Math.min(0.5, 0.9 * d3.min(values)) : 0.5, x2: Math.max(2, 1.1 * d3.max(values)), fill: "var(--tint)", insetTop: -1, insetBottom: -1 }),
          Plot.gridX({ stroke: "var(--line)", strokeOpacity: 1 }),
          Plot.axisY({ tickSize: 0, fontSize: narrow ? 10.5 : 12 }),
          Plot.ruleX([1], { stroke: "var(--ink)" }),
          Plot.dot(paper, { x: "paper", y: name, r: 5, symbol: "diamond", stroke: "var(--ink)", strokeDasharray: "2 1.5", fill: "none" }),
          ...shown.map((series) => dots(rows, series, "over", (row) => name(row.problem))),
          tip(rows, "over", (row) => name(row.problem), describe),
        ],
      });
    const dashed = paper.length ? ` Dashed diamonds: ${panel.paper}, published.` : "";
    const what = many ? `One mark per problem and kernel, ${problems.length} problems placed by their nonzeros.` : `One line per problem (${problems.length}), one mark per kernel.`;
    figure(into, panel.title, svg, `Speed-up over ${panel.baseline}. ${what}${dashed}`, "The table of rows below has every number.");
  }

  function roofline(into, panel, width, axis) {
    const key = axis === "share" ? (row) => 100 * row.share : "gflops";
    const rows = panel.rows.filter((row) => row.series.kernel !== "best" && row.intensity > 0 && (axis === "share" ? row.share != null : row.gflops != null));
    if (!rows.length) return words(into, `${panel.title}: no row has a roofline.`);
    const shown = seriesOf(rows);
    const roofs = axis === "share" ? [] : ceilings(panel.gpu.roofs, d3.extent(rows, (row) => row.intensity));
    const ends = roofs.map((roof) => roof[roof.length - 1]);
    const svg = Plot.plot({
      width, height: 400, marginLeft: 56, marginRight: 16, marginBottom: 40, marginTop: 22, style: FONT,
      x: { type: "log", label: "useful operations per byte (flop/B, log) →", grid: true, tickFormat: (value) => digits(value), ticks: width < 560 ? 4 : 8 },
      y: axis === "share" ? { label: "↑ share of the roofline (%)", grid: true, zero: true } : { type: "log", label: "↑ useful GFLOP/s (log)", grid: true, tickFormat: "~s" },
      marks: [
        axis === "share" ? Plot.ruleY([100], { stroke: "var(--ink)" }) : null,
        ...roofs.map((roof) => Plot.line(roof, { x: "x", y: "y", stroke: "var(--ink)", strokeDasharray: roof[0].dash, strokeWidth: 1.3 })),
        Plot.text(ends, { x: "x", y: "y", text: "name", textAnchor: "end", dy: -6, fill: "var(--ink)", stroke: "var(--ground)", strokeWidth: 4 }),
        ...shown.map((series) => dots(rows, series, "intensity", key, 3.5)),
        tip(rows, "intensity", key, (row) => `${describe(row)}\n${digits(row.gflops, 4)} useful GFLOP/s at ${digits(row.intensity)} flop/B`),
      ].filter(Boolean),
    });
    const median = shown.map((series) => {
      const mine = rows.filter((row) => row.series === series);
      return axis === "share" ? `${series.label} ${digits(100 * d3.median(mine, (row) => row.share), 2)} %` : `${series.label} ${digits(d3.median(mine, (row) => row.gflops))}`;
    });
    const meaning = axis === "share"
      ? "Roofline: launch overhead and the larger of compute and memory time at the rates measured in the same run; dense libraries are held against the dense product."
      : "Lines: rates measured in the same run. Useful operations are two per nonzero and column, also for dense libraries, which multiply the zeros too.";
    figure(into, panel.title, svg, `${meaning}`, `Medians: ${median.join("; ")}.`);
  }

  // Memory slopes up to the fp32 peak, then flat; the tensor peaks flat alone.
  function ceilings(roofs, [low, high]) {
    const x0 = low / 1.5, x1 = high * 2;
    const fp32 = roofs.fp32_tflops && 1e3 * roofs.fp32_tflops;
    const sloped = [["device memory", roofs.copy_gbs, null], ["L2", roofs.l2_gbs, "6 3"]].filter(([, gbs]) => gbs && fp32).map(([name, gbs, dash]) => {
      const knee = Math.min(Math.max(fp32 / gbs, x0), x1);
      return [{ x: x0, y: Math.min(fp32, gbs * x0), dash }, { x: knee, y: Math.min(fp32, gbs * knee), name: `${name}, ${digits(gbs / 1e3)} TB/s` }];
    });
    const flat = [["fp32", roofs.fp32_tflops], ["TF32", roofs.tf32_tflops], ["fp16", roofs.f16_tflops]].filter(([, peak]) => peak).map(([name, peak]) =>
      [{ x: x0, y: 1e3 * peak, dash: "2 4" }, { x: x1, y: 1e3 * peak, name: `${name} peak, ${digits(peak)} TFLOP/s` }]);
    return [...sloped, ...flat];
  }

  // Times as fast as each baseline against the width: one line per baseline, on recorded products of one matrix size.
  function widths(into, curves, width) {
    if (!curves.length) return;
    const points = curves.flatMap((curve, at) => curve.points.map(([n, over]) => ({ curve, at, n, over })));
    const dashes = [null, "6 3", "2 3", "9 3 2 3"];
    const ticks = [...new Set(points.map((point) => point.n))];
    const svg = Plot.plot({
      width, height: 260, marginLeft: 52, marginRight: width < 560 ? 16 : 170, marginBottom: 40, style: FONT,
      x: { type: "log", base: 2, label: "columns (log) →", ticks: ticks.length > 6 ? 5 : ticks, tickFormat: "d" },
      y: logAxis(points.map((point) => point.over), "↑ times as fast (log)"),
      marks: [
        Plot.ruleY([1], { stroke: "var(--ink)" }),
        ...curves.map((curve, at) => Plot.line(points.filter((point) => point.at === at), { x: "n", y: "over", stroke: "var(--ink)", strokeDasharray: dashes[at % dashes.length], strokeWidth: 1.6 })),
        Plot.dot(points, { x: "n", y: "over", r: 3.5, fill: "var(--ink)" }),
        Plot.text(curves.map((curve, at) => points.filter((point) => point.at === at).at(-1)), { x: "n", y: "over", text: (point) => point.curve.label, textAnchor: width < 560 ? "end" : "start", dx: width < 560 ? 0 : 8, dy: width < 560 ? -9 : 0, fill: "var(--ink)", stroke: "var(--ground)", strokeWidth: 4, paintOrder: "stroke" }),
        tip(points, "n", "over", (point) => `${point.curve.label}, ${point.n} columns: ${times(point.over)}`),
      ],
    });
    const told = curves.map((curve) => `${curve.label}: ${curve.points.map(([n, over]) => `${times(over)} with ${n} columns`).join(", ")}`);
    figure(into, `Other widths of ${[...new Set(curves.map((curve) => curve.size))].join(" and ")}`, svg, "The fastest sparse kernel against each baseline, as recorded; below 1× the baseline is faster.", `${told.join("; ")}.`);
  }

  return { strip, lines, widths, perProblem, roofline, swatch, words, digits, times, percent };
})();
