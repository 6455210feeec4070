// The past of a version as charts: what came, how long it took, who waited, who worked.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Hover, Series } from "../charts/time";
import { TimeChart } from "../charts/time";
import { bytes, count, millis, rate } from "../data/format";
import { grown } from "../data/histogram";
import type { Grid } from "../data/history";
import { grid, knownSeconds, means, rates, within } from "../data/history";
import type { Model, Overview } from "../data/types";
import { keyOf } from "../data/types";
import { REJECTION_LABELS } from "../data/words";
import { state } from "../state";

const POINTS = 150;

export function Charts({ model, document }: { model: Model; document: Overview }): JSX.Element {
  const [at, set] = useState<number | null>(null);
  const hover: Hover = { at, set };
  const key = keyOf(model);
  const span = Math.min(state.span, knownSeconds(state.history.samples, key));
  const past = grid(state.history.samples, key, document.sample?.time ?? document.time, span, POINTS);
  const { times } = past;
  const perSecond = (value: number | null): string => (value === null ? "–" : `${rate(value)}/s`);
  const milli = (values: (number | null)[]): (number | null)[] => values.map((it) => (it === null ? null : it * 1000));
  const plain = (read: (it: NonNullable<Grid["values"][number]>) => number | null): (number | null)[] =>
    past.values.map((it) => (it ? read(it) : null));
  const target = model.maxLatencyMs === null ? undefined : { value: model.maxLatencyMs, label: `target ${millis(model.maxLatencyMs)}` };
  return (
    <>
    <div class="row">
      <h2>The last {span / 60} minutes</h2>
      <span class="switch" role="group" aria-label="Time shown">
        <button type="button" aria-pressed={state.span === 120} onClick={() => state.show(120)}>2 min</button>
        <button type="button" aria-pressed={state.span === 600} onClick={() => state.show(600)}>10 min</button>
      </span>
    </div>
    <div class="charts">
      <TimeChart
        title="Traffic" about="Requests per second by how they ended. Goodput is what was answered in time."
        times={times} format={perSecond} hover={hover} stacked empty="no requests in this time"
        series={[
          { label: "in time (goodput)", colour: "s1", values: rates(past, (it) => it.answered - it.late) },
          { label: "late", colour: "s2", values: rates(past, "late") },
          { label: "rejected", colour: "s3", values: rates(past, "rejected") },
          { label: "failed", colour: "s4", values: rates(past, "failed") },
          { label: "cancelled", colour: "s6", optional: true, values: rates(past, "cancelled") },
        ]}
      />
      <TimeChart
        title="Latency" about="From admission to answer. Half of the answers were faster than p50, 99 of 100 faster than p99."
        times={times} format={millis} hover={hover} limit={target} empty="no answers in this time"
        series={[
          { label: "p99", colour: "s3", values: plain((it) => it.p99Ms) },
          { label: "p50", colour: "s1", values: plain((it) => it.p50Ms) },
        ]}
      />
      <TimeChart
        title="Where the time goes" about="Mean time that answered requests waited, and mean time that batches ran. A long queue time means too few workers; a long compute time a slow model."
        times={times} format={millis} hover={hover} stacked empty="no answers in this time"
        series={[
          { label: "in the queue", colour: "s2", values: milli(means(past, "queueSecondsSum", "answered")) },
          { label: "computing", colour: "s5", values: milli(means(past, "computeSecondsSum", "batches")) },
        ]}
      />
      <TimeChart
        title="Queue" about="Requests that waited. When the limit is reached, requests are rejected."
        times={times} format={count} hover={hover} least={5} limit={{ value: model.queueMax, label: `limit ${count(model.queueMax)}` }} empty="nobody waited"
        series={[{ label: "waiting", colour: "s2", values: plain((it) => it.waiting) }]}
      />
      <TimeChart
        title="Rejections by reason" about="Requests that were turned away before the model ran them."
        times={times} format={perSecond} hover={hover} stacked empty="nothing was rejected"
        series={rejectionSeries(past)}
      />
      <TimeChart
        title="Batch size" about="Mean number of items in a batch. It grows with the load: that is how a busy server keeps up."
        times={times} format={(value) => (value === null ? "–" : rate(value))} hover={hover} least={1} empty="no batches in this time"
        limit={{ value: model.maxBatchSize, label: `at most ${count(model.maxBatchSize)}` }}
        series={[{ label: "items in a batch", colour: "s1", values: means(past, "items", "batches") }]}
      />
      <TimeChart
        title="Workers" about="Workers that were ready, and how many exited or could not load in the minute before. Exits again and again are a crash loop."
        times={times} format={count} hover={hover} least={2} empty="no workers"
        series={[
          { label: "ready", colour: "s5", values: plain((it) => it.workersReady) },
          { label: "exits and failed loads in a minute", colour: "s3", values: within(past, 60, (it) => it.exits + it.loadFailures) },
        ]}
      />
      <TimeChart
        title="Memory of the workers" about="Of all workers of this version together. A line that only rises is a leak."
        times={times} format={bytes} hover={hover} empty="not known"
        series={[{ label: "memory", colour: "s5", values: plain((it) => it.memoryBytes || null) }]}
      />
    </div>
    </>
  );
}

const REJECTION_COLOURS = ["s3", "s2", "s4", "s1", "s5", "s6"];

function rejectionSeries(past: Grid): Series[] {
  const reasons = new Map<string, number>();
  const first = past.values.find((it) => it !== null)?.rejections ?? {};
  const last = past.values.findLast((it) => it !== null)?.rejections ?? {};
  for (const [name, n] of Object.entries(grown(last, first))) reasons.set(name, n);
  const named = [...reasons].sort(([, one], [, other]) => other - one).map(([name]) => name).slice(0, REJECTION_COLOURS.length);
  if (named.length === 0) return [{ label: "rejected", colour: "s3", values: rates(past, "rejected") }];
  return named.map((reason, at) => ({
    label: REJECTION_LABELS[reason] ?? reason,
    colour: REJECTION_COLOURS[at] ?? "s6",
    values: rates(past, (it) => it.rejections?.[reason] ?? 0),
  }));
}
