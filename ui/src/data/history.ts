// The past as this page knows it: samples of the last ten minutes (the server sends those from
// before the page was opened) and the documents seen since, thinned out as they age.

import type { Model, ModelSample, Overview, Sample } from "./types";
import { keyOf } from "./types";

const KEPT_MS = 10 * 60_000;
const ALL_KEPT_MS = 65_000;
const OLD_EVERY_MS = 10_000;
const QUANTILE_MS = 30_000;

export class History {
  samples: Sample[] = [];
  documents: Overview[] = [];

  /** The server's own memory of the last minutes replaces ours. */
  past(samples: Sample[]): void {
    const newest = samples.at(-1)?.time ?? 0;
    this.samples = [...samples, ...this.samples.filter((it) => it.time > newest)];
  }

  add(document: Overview): void {
    const { sample } = document;
    if (sample && sample.time > (this.samples.at(-1)?.time ?? 0)) this.samples.push(sample);
    this.documents.push(document);
    const oldest = document.time - KEPT_MS;
    this.samples = this.samples.filter((it) => it.time >= oldest);
    this.documents = thinned(this.documents, document.time);
  }

  /** The document of about so many seconds ago, or the oldest one since then. */
  before(seconds: number): Overview | undefined {
    const newest = this.documents.at(-1);
    if (!newest) return undefined;
    const at = newest.time - seconds * 1000 - 500;
    const found = this.documents.find((it) => it.time >= at);
    return found === newest ? undefined : found;
  }

  modelBefore(key: string, seconds: number): Model | undefined {
    return this.before(seconds)?.models.find((it) => keyOf(it) === key);
  }
}

function thinned(documents: Overview[], now: number): Overview[] {
  let last = -Infinity;
  return documents.filter((it) => {
    const age = now - it.time;
    if (age > KEPT_MS) return false;
    if (age > ALL_KEPT_MS && it.time - last < OLD_EVERY_MS) return false;
    last = it.time;
    return true;
  });
}

/** Values on an even grid of times, null where nothing is known. */
export interface Grid {
  times: number[];
  stepMs: number;
  values: (ModelSample | null)[];
  /** When each value was really taken. */
  taken: number[];
}

/** The server takes a sample every two seconds, and others for longer ranges. */
const SAMPLE_MS = 2000;

/** Samples of a model at even times, the last one now; a step has two samples at least. Gaps stay gaps. */
export function grid(samples: Sample[], key: string, now: number, seconds: number, points: number, everyMs = SAMPLE_MS): Grid {
  const stepMs = Math.max(2, Math.ceil((seconds * 1000) / points / everyMs)) * everyMs;
  const end = Math.floor(now / stepMs) * stepMs;
  const cells = Math.floor((seconds * 1000) / stepMs);
  const times: number[] = [];
  const values: (ModelSample | null)[] = [];
  const taken: number[] = [];
  let at = 0;
  for (let cell = cells; cell >= 0; cell--) {
    const time = end - cell * stepMs;
    while (at + 1 < samples.length && (samples[at + 1]?.time ?? Infinity) <= time) at++;
    const sample = samples[at];
    const near = sample && sample.time <= time && time - sample.time <= Math.max(stepMs, 5000);
    times.push(time);
    taken.push(sample?.time ?? 0);
    values.push((near && sample.models[key]) || null);
  }
  return { times, stepMs, values, taken };
}

export type Quantile = "p50Ms" | "p90Ms" | "p99Ms" | "p999Ms";

/** A quantile of the latency of a version: that of the newest sample with answers, and none of long ago. */
export function recentQuantile(samples: Sample[], key: string, which: Quantile): number | null {
  const oldest = (samples.at(-1)?.time ?? 0) - QUANTILE_MS;
  const known = (it: Sample): number | null => (it.time >= oldest ? (it.models[key]?.[which] ?? null) : null);
  const found = samples.findLast((it) => known(it) !== null);
  return found ? known(found) : null;
}

/** Something that happened to a version: a line in every chart. */
export interface Mark {
  time: number;
  label: string;
}

/** Exits of workers, changes of settings, and versions of the same model that came or went. */
export function marks(samples: Sample[], key: string): Mark[] {
  const name = key.slice(0, key.lastIndexOf("/") + 1);
  const versions = (sample: Sample): string[] => Object.keys(sample.models).filter((it) => it.startsWith(name) && !it.slice(name.length).includes("/"));
  return samples.slice(1).flatMap((sample, at) => {
    const before = samples[at] as Sample;
    const [now, then] = [sample.models[key], before.models[key]];
    const labels: string[] = [];
    if (now && then && now.exits + now.loadFailures > then.exits + then.loadFailures) labels.push("a worker exited or could not load");
    if (now && then && now.settingChanges > then.settingChanges) labels.push("a setting was changed");
    for (const it of versions(sample)) if (!before.models[it]) labels.push(`version ${it.slice(name.length)} came`);
    for (const it of versions(before)) if (!sample.models[it]) labels.push(`version ${it.slice(name.length)} went`);
    return labels.map((label) => ({ time: sample.time, label }));
  });
}

/** What happened several times, one after the other, as one: first, last, and how often. */
export function summedMarks(marks: Mark[]): { label: string; first: number; last: number; times: number }[] {
  const summed: ReturnType<typeof summedMarks> = [];
  for (const { time, label } of marks) {
    const before = summed.at(-1);
    if (before?.label === label) [before.last, before.times] = [time, before.times + 1];
    else summed.push({ label, first: time, last: time, times: 1 });
  }
  return summed;
}

/** Counts by class at even times: how many were counted in each class in each of so many cells. */
export function cells(samples: Sample[], key: string, [from, to]: [number, number], many: number, read: (it: ModelSample) => number[] | undefined): number[][] {
  const found = Array.from({ length: many }, (): number[] => []);
  for (const sample of samples) {
    const cell = found[Math.floor(((sample.time - from) / Math.max(1, to - from)) * many)];
    const model = sample.models[key];
    if (cell && model) (read(model) ?? []).forEach((n, at) => (cell[at] = (cell[at] ?? 0) + n));
  }
  return found;
}

/** Seconds of the past of which something is known, in whole minutes: a young version fills its charts. */
export function knownSeconds(samples: Sample[], key: string, least = 120): number {
  const newest = samples.at(-1)?.time ?? 0;
  const first = samples.find((it) => it.models[key])?.time ?? newest;
  return Math.max(least, Math.ceil((newest - first) / 60_000) * 60);
}

type Field = { [K in keyof ModelSample]: ModelSample[K] extends number ? K : never }[keyof ModelSample] & string;

/** How fast a total grew, per second, at each time of the grid. A total that fell began anew. */
export function rates(grid: Grid, read: Field | ((it: ModelSample) => number)): (number | null)[] {
  const of = typeof read === "function" ? read : (it: ModelSample) => it[read];
  return grid.values.map((value, at) => {
    const before = at > 0 ? grid.values[at - 1] : null;
    if (!value || !before) return null;
    const by = of(value) - of(before);
    const took = (grid.taken[at] ?? 0) - (grid.taken[at - 1] ?? 0);
    return by < 0 ? null : took > 0 ? (by * 1000) / took : 0;
  });
}

/** How much a total grew within so many seconds before each time of the grid. */
export function within(grid: Grid, seconds: number, of: (it: ModelSample) => number): (number | null)[] {
  const steps = Math.max(1, Math.round((seconds * 1000) / grid.stepMs));
  return grid.values.map((value, at) => {
    const earlier = grid.values.slice(Math.max(0, at - steps), at + 1).find((it) => it !== null);
    return value && earlier ? Math.max(0, of(value) - of(earlier)) : null;
  });
}

/** How much one total grew for each unit of another: a mean. */
export function means(grid: Grid, sum: Field, of: Field): (number | null)[] {
  const sums = rates(grid, sum);
  const counts = rates(grid, of);
  return sums.map((value, at) => {
    const n = counts[at];
    return value === null || !n ? null : value / n;
  });
}

/** What happened to a model within the last seconds. */
export interface Recent {
  seconds: number;
  requests: number;
  answered: number;
  late: number;
  rejected: number;
  failed: number;
  cancelled: number;
  batches: number;
  items: number;
  restarts: number;
}

const FIELDS = ["requests", "answered", "late", "rejected", "failed", "cancelled", "batches", "items"] as const;

export function recent(samples: Sample[], key: string, seconds: number): Recent | null {
  const newest = samples.at(-1);
  const now = newest?.models[key];
  if (!newest || !now) return null;
  const from = newest.time - seconds * 1000 - 500;
  const first = samples.find((it) => it.time >= from && it.models[key]);
  const before = first?.models[key];
  if (!first || !before || first === newest) return null;
  const spent = (newest.time - first.time) / 1000;
  const grew = { seconds: spent, restarts: Math.max(0, now.restarts - before.restarts) } as Recent;
  for (const field of FIELDS) grew[field] = Math.max(0, now[field] - before[field]);
  return grew;
}

/** A straight line through points: its slope per second, and how well it fits (0 to 1). */
export function trend(points: [number, number][]): { slope: number; fit: number } | null {
  const n = points.length;
  if (n < 3) return null;
  const meanX = points.reduce((sum, [x]) => sum + x, 0) / n;
  const meanY = points.reduce((sum, [, y]) => sum + y, 0) / n;
  let xx = 0;
  let xy = 0;
  let yy = 0;
  for (const [x, y] of points) {
    xx += (x - meanX) ** 2;
    xy += (x - meanX) * (y - meanY);
    yy += (y - meanY) ** 2;
  }
  if (xx === 0) return null;
  return { slope: (xy / xx) * 1000, fit: yy === 0 ? 0 : (xy * xy) / (xx * yy) };
}
