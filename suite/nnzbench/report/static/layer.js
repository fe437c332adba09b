"use strict";
// The recorded problems nearest to a layer, who is faster there than each rival, and from which width on it is not.
// No element of the page is touched here. `asked` is {m, k, n, zeros, op, math, pattern}; a row has its problem, its
// series {math, kernel, dense, pattern} and `us`.
const layer = (() => {
  const log2 = Math.log2;
  const filled = (one) => Math.max(one.nnz, 1) / (one.m * (one.op === "sddmm" ? one.n : one.k));
  const fillOf = (asked) => Math.max(1 - asked.zeros, 1e-6);
  const SAME_FILL = 0.35; // octaves in which two shares of zeros are the same level
  const CUSPARSE = "cusparse";
  // Dense arithmetic that a layer of a type can be run in instead: its own, or with fewer digits.
  const INSTEAD = { f32: ["f32", "tf32", "f16"], f16: ["f16"], bf16: ["bf16"] };
  const WORDS = { f32: "fp32", tf32: "TF32", f16: "fp16", bf16: "bf16" };

  // Octaves between a layer and a recorded problem: one for a factor of two in one size.
  function octaves(asked, problem) {
    const steps = [log2(problem.m / asked.m), log2(problem.k / asked.k), log2(problem.n / asked.n)];
    steps.push(log2(filled(problem) / fillOf(asked)));
    return Math.hypot(...steps);
  }

  const fastest = (rows) => rows.reduce((least, row) => (least && least.us <= row.us ? least : row), null);

  // Rows of the op whose kernel takes a matrix of that pattern; one vector is one column.
  function able(asked, rows) {
    const ops = asked.op === "spmm" ? ["spmm", "spmv"] : [asked.op];
    return rows.filter((row) => ops.includes(row.problem.op) && (!row.series.pattern || row.series.pattern === asked.pattern));
  }

  // What a sparse kernel is set against: dense in each arithmetic, and the vendor's sparse library.
  function rivals(asked, rows) {
    const present = (rival) => rows.some((row) => is(rival, row));
    const dense = (INSTEAD[asked.math] ?? [asked.math]).map((math) => ({
      math, dense: true, label: `dense ${WORDS[math] ?? math}${math === asked.math ? "" : ", fewer digits"}`,
    }));
    return [...dense, { math: asked.math, dense: false, label: `cuSPARSE ${WORDS[asked.math] ?? asked.math}` }].filter(present);
  }

  const is = (rival, row) => row.series.math === rival.math && (rival.dense ? Boolean(row.series.dense) : row.series.kernel === CUSPARSE);
  // Against cuSPARSE, cuSPARSE does not count.
  const competes = (asked, rival, row) => row.series.math === asked.math && !row.series.dense && (rival.dense || row.series.kernel !== CUSPARSE);

  // Per problem the fastest row of the rival and the fastest that leaves zeros out, where there are both.
  function contests(asked, rows, rival) {
    const found = new Map();
    for (const row of rows) {
      const side = is(rival, row) ? "theirs" : competes(asked, rival, row) ? "ours" : null;
      if (!side) continue;
      if (!found.has(row.problem)) found.set(row.problem, { theirs: [], ours: [] });
      found.get(row.problem)[side].push(row);
    }
    return [...found].filter(([, one]) => one.theirs.length && one.ours.length).map(([problem, one]) => {
      const dense = fastest(one.theirs), sparse = fastest(one.ours);
      return { problem, dense, sparse, over: dense.us / sparse.us };
    });
  }

  function nearest(asked, rows, rival, count) {
    return contests(asked, rows, rival).map((one) => ({ ...one, octaves: octaves(asked, one.problem) }))
      .sort((a, b) => a.octaves - b.octaves).slice(0, count);
  }

  // [width, times as fast as the rival] on recorded problems of the same m and k and about as many zeros: of several
  // of one width those with the nearest share of zeros, the fastest time of either side.
  function widths(asked, rows, rival) {
    const byWidth = new Map();
    for (const one of contests(asked, rows, rival)) {
      const away = Math.abs(log2(filled(one.problem) / fillOf(asked)));
      if (one.problem.m !== asked.m || one.problem.k !== asked.k || away >= SAME_FILL) continue;
      const known = byWidth.get(one.problem.n);
      const mine = { away, dense: one.dense.us, sparse: one.sparse.us };
      if (!known || away < known.away - 1e-3) byWidth.set(one.problem.n, mine);
      else if (away < known.away + 1e-3) byWidth.set(one.problem.n, { away, dense: Math.min(known.dense, mine.dense), sparse: Math.min(known.sparse, mine.sparse) });
    }
    return [...byWidth].map(([n, one]) => [n, one.dense / one.sparse]).sort((a, b) => a[0] - b[0]);
  }

  // Who is faster from which width on (two digits, between two recorded ones), or throughout: winner "both" where the
  // rival is from n on, "later" where sparse is. Null where fewer than two widths are recorded.
  function crossover(points) {
    if (points.length < 2) return null;
    const range = { least: points[0][0], most: points[points.length - 1][0] };
    const ahead = points.map(([, over]) => over >= 1);
    const last = ahead.lastIndexOf(!ahead[points.length - 1]);
    if (last < 0) return { ...range, winner: ahead[0] ? "sparse" : "rival" };
    const [[n, before], [next, after]] = [points[last], points[last + 1]];
    const share = Math.log(before) / (Math.log(before) - Math.log(after));
    const at = Math.exp(Math.log(n) + share * Math.log(next / n));
    return { ...range, winner: ahead[last] ? "both" : "later", n: Math.round(Number(at.toPrecision(2))) };
  }

  return { able, rivals, octaves, nearest, widths, crossover };
})();
if (typeof module !== "undefined") module.exports = layer;
