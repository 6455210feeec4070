// Histograms of totals: what came between two documents, and quantiles of it.

import type { BatchSize, Counts, Histogram } from "./types";

/** What was counted between two documents; all of the later one if the counts began anew. */
export function difference(later: Histogram, earlier: Histogram | undefined): Histogram {
  if (!earlier || earlier.bounds.length !== later.bounds.length) return later;
  const counts = later.counts.map((n, at) => n - (earlier.counts[at] ?? 0));
  if (counts.some((n) => n < 0)) return later;
  return { bounds: later.bounds, counts, sum: later.sum - earlier.sum };
}

export function total(histogram: Histogram): number {
  return histogram.counts.reduce((sum, n) => sum + n, 0);
}

/** The value below which this share of all lies, interpolated within its bucket. */
export function quantile(histogram: Histogram, share: number): number | null {
  const all = total(histogram);
  if (all === 0) return null;
  const wanted = share * all;
  let seen = 0;
  for (const [at, n] of histogram.counts.entries()) {
    if (n > 0 && seen + n >= wanted) {
      const low = at > 0 ? (histogram.bounds[at - 1] ?? 0) : 0;
      const high = histogram.bounds[at];
      if (high === undefined) return low;
      return low + ((wanted - seen) / n) * (high - low);
    }
    seen += n;
  }
  return histogram.bounds.at(-1) ?? null;
}

/** The share of all values between two bounds. */
export function shareBetween(histogram: Histogram, low: number, high: number): number | null {
  const all = total(histogram);
  if (all === 0) return null;
  return below(histogram, high) / all - below(histogram, low) / all;
}

function below(histogram: Histogram, limit: number): number {
  let seen = 0;
  for (const [at, n] of histogram.counts.entries()) {
    const from = at > 0 ? (histogram.bounds[at - 1] ?? 0) : 0;
    const to = histogram.bounds[at] ?? Infinity;
    if (to <= limit) seen += n;
    else if (from < limit && Number.isFinite(to)) seen += n * ((limit - from) / (to - from));
  }
  return seen;
}

/** Counts by name between two documents; only those that grew. */
export function grown(later: Counts, earlier: Counts | undefined): Counts {
  const more: Counts = {};
  for (const [name, n] of Object.entries(later)) {
    const before = earlier?.[name] ?? 0;
    const by = n >= before ? n - before : n;
    if (by > 0) more[name] = by;
  }
  return more;
}

/** Batches by size between two documents; only sizes of which there were some. */
export function sizesBetween(later: BatchSize[], earlier: BatchSize[] | undefined): BatchSize[] {
  const before = new Map(earlier?.map((it) => [it.size, it]));
  return later
    .map((it) => {
      const was = before.get(it.size);
      if (!was || it.batches < was.batches) return it;
      return { size: it.size, batches: it.batches - was.batches, answered: it.answered - was.answered, computeSeconds: it.computeSeconds - was.computeSeconds };
    })
    .filter((it) => it.batches > 0);
}
