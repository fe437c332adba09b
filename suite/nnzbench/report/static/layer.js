"use strict";
// The recorded problems nearest to a layer, and who is faster there. No element of the page is touched here.
const layer = (() => {
  const log2 = Math.log2;
  const filled = (one) => Math.max(one.nnz, 1) / (one.m * (one.op === "sddmm" ? one.n : one.k));

  // Octaves between a layer {m, k, n, zeros} and a recorded problem: one for a factor of two in one size.
  function octaves(asked, problem) {
    const steps = [log2(problem.m / asked.m), log2(problem.k / asked.k), log2(problem.n / asked.n)];
    steps.push(log2(filled(problem) / Math.max(1 - asked.zeros, 1e-6)));
    return Math.hypot(...steps);
  }

  const fastest = (rows) => rows.reduce((least, row) => (least && least.us <= row.us ? least : row), null);

  // Rows of one arithmetic on one GPU under one policy: per problem the fastest dense and the fastest sparse one.
  function contests(rows) {
    const found = new Map();
    for (const row of rows) {
      if (!found.has(row.problem)) found.set(row.problem, { problem: row.problem, dense: [], sparse: [] });
      found.get(row.problem)[row.series.dense ? "dense" : "sparse"].push(row);
    }
    return [...found.values()].filter((one) => one.dense.length && one.sparse.length).map((one) => {
      const dense = fastest(one.dense), sparse = fastest(one.sparse);
      return { problem: one.problem, dense, sparse, over: dense.us / sparse.us };
    });
  }

  function nearest(asked, rows, count) {
    return contests(rows).map((one) => ({ ...one, octaves: octaves(asked, one.problem) }))
      .sort((a, b) => a.octaves - b.octaves).slice(0, count);
  }

  // Width from which dense is faster, on recorded problems of the same matrix sizes and about as many zeros.
  function crossover(asked, rows) {
    const same = contests(rows).filter((one) => one.problem.m === asked.m && one.problem.k === asked.k && Math.abs(log2(filled(one.problem) / Math.max(1 - asked.zeros, 1e-6))) < 0.35);
    const byWidth = new Map();
    for (const one of same) if (!byWidth.has(one.problem.n) || byWidth.get(one.problem.n) < one.over) byWidth.set(one.problem.n, one.over);
    const points = [...byWidth].sort((a, b) => a[0] - b[0]);
    if (points.length < 2) return null;
    const ahead = points.map(([, over], at) => (over >= 1 ? at : -1)).filter((at) => at >= 0);
    const range = { least: points[0][0], most: points[points.length - 1][0] };
    if (!ahead.length) return { ...range, winner: "dense" };
    const last = ahead[ahead.length - 1];
    if (last === points.length - 1) return { ...range, winner: "sparse" };
    const [[n, before], [next, after]] = [points[last], points[last + 1]];
    const share = Math.log(before) / (Math.log(before) - Math.log(after));
    return { ...range, winner: "both", n: Math.round(Math.exp(Math.log(n) + share * Math.log(next / n))) };
  }

  return { octaves, nearest, crossover };
})();
if (typeof module !== "undefined") module.exports = layer;
