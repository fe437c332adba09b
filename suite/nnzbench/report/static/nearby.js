"use strict";
// What the records say of a layer: of its operation, arithmetic and kind of pattern the nearest matrix that has it, or that has
// neighbours on both sides, within an octave in each size and five points of zeros. No element is touched.
// A point is {rows, inner, columns, zeros, ratio, tuned, at}; asked is {rows, inner, columns, zeros}.
const nearby = (() => {
  const OCTAVE = 2, POINTS = 5, SAME_POINTS = 1, SAME_NONZEROS = 1.1;
  const away = (one, other) => Math.max(one, other) / Math.min(one, other);
  const near = (one, other) => away(one, other) <= OCTAVE;
  const nonzeros = (zeros) => Math.max(100 - zeros, 1e-4);
  const group = (points, key) => {
    const found = new Map();
    for (const point of points) found.set(key(point), [...(found.get(key(point)) ?? []), point]);
    return found;
  };
  const found = (point) => ({ ratio: point.ratio, tuned: Boolean(point.tuned), points: [point.at] });
  const mixed = (low, high, share) => ({
    ratio: low.ratio ** (1 - share) * high.ratio ** share, tuned: low.tuned && high.tuned, points: [...low.points, ...high.points],
  });

  function at(points, zeros) {
    const off = (point) => Math.abs(point.zeros - zeros);
    const bucket = (point) => Math.floor(off(point) / SAME_POINTS); // of points about as near, tuned ones come first
    const sorted = [...points].sort((a, b) => bucket(a) - bucket(b) || Boolean(b.tuned) - Boolean(a.tuned) || off(a) - off(b));
    const same = sorted.find((point) => off(point) <= SAME_POINTS && away(nonzeros(point.zeros), nonzeros(zeros)) <= SAME_NONZEROS);
    if (same) return found(same);
    const close = sorted.filter((point) => off(point) <= POINTS);
    const low = close.find((point) => point.zeros < zeros), high = close.find((point) => point.zeros > zeros);
    if (!low || !high) return null;
    const share = Math.log(nonzeros(low.zeros) / nonzeros(zeros)) / Math.log(nonzeros(low.zeros) / nonzeros(high.zeros));
    return mixed(found(low), found(high), share);
  }

  // {ratio, tuned, points}, or a word for what is not recorded: "kind", "size", "columns" or "zeros".
  function answer(points, asked) {
    const far = (point) => away(point.rows, asked.rows) * away(point.inner, asked.inner);
    const sized = points.filter((point) => near(point.rows, asked.rows) && near(point.inner, asked.inner));
    if (!sized.length) return points.length ? "size" : "kind";
    const sizes = group(sized, (point) => `${point.rows} ${point.inner}`);
    let missing = "columns";
    for (const size of [...sizes.values()].sort((a, b) => far(a[0]) - far(b[0]))) {
      const widths = group(size.filter((point) => near(point.columns, asked.columns)), (point) => point.columns);
      const known = new Map([...widths].map(([width, some]) => [width, at(some, asked.zeros)]).filter(([, one]) => one));
      if (known.has(asked.columns)) return known.get(asked.columns);
      const low = Math.max(...[...known.keys()].filter((width) => width < asked.columns));
      const high = Math.min(...[...known.keys()].filter((width) => width > asked.columns));
      if (Number.isFinite(low) && Number.isFinite(high)) {
        return mixed(known.get(low), known.get(high), Math.log(asked.columns / low) / Math.log(high / low));
      }
      if (widths.size && !known.size) missing = "zeros";
    }
    return missing;
  }

  return { answer, group };
})();
if (typeof module !== "undefined") module.exports = nearby;
