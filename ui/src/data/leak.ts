// Memory that only grows: seen on a worker, or, from before the page was opened, on all together.

import { bytes, duration } from "./format";
import type { History } from "./history";
import { trend } from "./history";
import type { About } from "./problem";
import type { Model, Overview } from "./types";
import { keyOf } from "./types";

const LEAK_SECONDS = 60;
/** A leak grows with the traffic, so the whole past need not be one straight line. */
const LEAK_WINDOWS = [600, 240, 90];
const LEAK_BYTES_MINUTE = 1e6;
const LEAK_FIT = 0.8;

/** Memory that only grows, seen on one worker or, from before the page was opened, on all together. */
export function leaking(model: Model, document: Overview, history: History): About | null {
  const key = keyOf(model);
  let worst: { who: string; slope: number; now: number } | null = null;
  for (const worker of model.workers) {
    const points: [number, number][] = [];
    for (const it of history.documents) {
      const then = it.models.find((other) => keyOf(other) === key)?.workers.find((other) => other.id === worker.id);
      if (then?.memoryBytes && then.pid === worker.pid) points.push([it.time, then.memoryBytes]);
    }
    const slope = growth(points);
    if (slope > (worst?.slope ?? 0)) worst = { who: `Worker ${worker.id} of ${model.name} ${model.version}`, slope, now: worker.memoryBytes ?? 0 };
  }
  if (!worst) {
    const ready = history.samples.at(-1)?.models[key]?.workersReady ?? 0;
    const restarts = history.samples.at(-1)?.models[key]?.restarts ?? 0;
    const from = history.samples.findLastIndex((it) => {
      const then = it.models[key];
      return !then || then.workersReady !== ready || then.restarts !== restarts;
    });
    const points = history.samples.slice(from + 1).flatMap((it): [number, number][] => {
      const memory = it.models[key]?.memoryBytes;
      return memory ? [[it.time, memory]] : [];
    });
    const slope = ready > 0 ? growth(points) : 0;
    const workers = ready === 1 ? "The worker" : `The ${ready} workers`;
    if (slope > 0) worst = { who: `${workers} of ${model.name} ${model.version}`, slope, now: points.at(-1)?.[1] ?? 0 };
  }
  if (!worst) return null;
  const left = document.machine ? (document.machine.memoryTotalBytes - document.machine.memoryUsedBytes) / worst.slope : Infinity;
  const until = left < 48 * 3600 ? ` At this speed the machine's memory is full in ${duration(left)}.` : "";
  return {
    tone: left < 3600 ? "bad" : "warn",
    what: `${worst.who}: memory grows by ${bytes(worst.slope * 60)} a minute, now ${bytes(worst.now)}: a leak?`,
    advice: `${until} Scaling down and up again frees it for now; look for what the model keeps between requests.`.trim(),
  };
}

/** Bytes per second, if memory has grown evenly for long enough, up to now; 0 otherwise. */
export function growth(points: [number, number][]): number {
  const end = points.at(-1)?.[0] ?? 0;
  for (const seconds of LEAK_WINDOWS) {
    const slope = steady(points.filter(([time]) => time >= end - seconds * 1000));
    if (slope > 0) return slope;
  }
  return 0;
}

function steady(points: [number, number][]): number {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last || last[0] - first[0] < LEAK_SECONDS * 1000) return 0;
  const line = trend(points);
  // It must have grown in the later half too: a model that fills its caches once is no leak.
  const half = trend(points.slice(Math.floor(points.length / 2)));
  if (!line || !half || line.fit < LEAK_FIT || half.slope < line.slope / 3) return 0;
  const grew = last[1] - first[1];
  return line.slope * 60 >= LEAK_BYTES_MINUTE && grew > first[1] * 0.02 ? line.slope : 0;
}
