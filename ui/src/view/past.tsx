// The past of a version as charts: what came, how long it took, who waited, who worked.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Hover, Series } from "../charts/time";
import { HeatMap } from "../charts/heat";
import { TimeChart } from "../charts/time";
import { bytes, clock, count, millis, rate } from "../data/format";
import { grown } from "../data/histogram";
import type { Grid } from "../data/history";
import { cells, grid, knownSeconds, marks, means, rates, summedMarks, within } from "../data/history";
import type { Model, ModelSample, Overview } from "../data/types";
import { keyOf } from "../data/types";
import { REJECTION_LABELS } from "../data/words";
import { state } from "../state";

const POINTS = 150;
/** Those that are named above the charts. */
const EVENTS = 6;

const RANGES: [number, string, string][] = [
  [120, "2 min", "The last 2 minutes"],
  [600, "10 min", "The last 10 minutes"],
  [3600, "1 h", "The last hour"],
  [86_400, "24 h", "The last day"],
];
const CELLS = 60;

/** What charts show: the range that was chosen, or the part of it that was drawn. */
function shownRange(key: string, newest: number): [number, number] {
  const { samples } = state.samples();
  if (state.zoomed) return state.zoomed;
  const least = Math.min(state.span, 120);
  return [newest - Math.min(state.span, knownSeconds(samples, key, least)) * 1000, newest];
}

function Range({ range: [from, to] }: { range: [number, number] }): JSX.Element {
  const title = state.zoomed ? `${clock(from)} to ${clock(to)}` : RANGES.find(([seconds]) => seconds === state.span)?.[2];
  return (
    <div class="row">
      <h2>{title}</h2>
      <div class="buttons">
        <button type="button" disabled={to - from < 30_000} title="The later half. Or draw over a chart" onClick={() => state.zoom([(from + to) / 2, to])}>Zoom in</button>
        {state.zoomed && <button type="button" onClick={() => state.zoom(null)}>Whole range</button>}
        <span class="switch" role="group" aria-label="Time shown">
          {RANGES.map(([seconds, label]) => <button key={label} type="button" aria-pressed={state.span === seconds} onClick={() => state.show(seconds)}>{label}</button>)}
        </span>
      </div>
    </div>
  );
}

/** What a heat map shows of the range that charts show. */
function heat(model: Model, document: Overview, read: (it: ModelSample) => number[] | undefined): { range: [number, number]; cells: number[][] } {
  const { samples, everyMs } = state.samples();
  const key = keyOf(model);
  const range = shownRange(key, samples.at(-1)?.time ?? document.time);
  const many = Math.max(1, Math.min(CELLS, Math.floor((range[1] - range[0]) / everyMs / 2)));
  return { range, cells: cells(samples, key, range, many, read) };
}

/** Sizes of batches over the same time. */
export function SizesOverTime({ model, document }: { model: Model; document: Overview }): JSX.Element {
  return (
    <HeatMap
      title="Batch size over time" about="How many batches had how many items. A busy server has large batches."
      {...heat(model, document, (it) => it.sizeClasses)} label={(it) => String(2 ** it)} empty="no batches in this time"
    />
  );
}

export function Charts({ model, document }: { model: Model; document: Overview }): JSX.Element {
  const [at, set] = useState<number | null>(null);
  const [from, drag] = useState<number | null>(null);
  const hover: Hover = { at, set, from, drag, zoom: (one, other) => state.zoom([one, other]) };
  const key = keyOf(model);
  const { samples, everyMs } = state.samples();
  const range = shownRange(key, samples.at(-1)?.time ?? document.time);
  const past = grid(samples, key, range[1], (range[1] - range[0]) / 1000, POINTS, everyMs);
  const { times } = past;
  const happened = marks(samples, key).filter((it) => it.time >= range[0] && it.time <= range[1]);
  const perSecond = (value: number | null): string => (value === null ? "–" : `${rate(value)}/s`);
  const milli = (values: (number | null)[]): (number | null)[] => values.map((it) => (it === null ? null : it * 1000));
  const plain = (read: (it: NonNullable<Grid["values"][number]>) => number | null): (number | null)[] =>
    past.values.map((it) => (it ? read(it) : null));
  const target = model.maxLatencyMs === null ? undefined : { value: model.maxLatencyMs, label: `target ${millis(model.maxLatencyMs)}` };
  return (
    <>
    <Range range={range} />
    {happened.length > 0 && (
      <ul class="events" aria-label="What happened in this time">
        {summedMarks(happened).slice(-EVENTS).map(({ label, first, last, times }) => (
          <li key={`${first} ${label}`}><time>{clock(first)}</time>{times > 1 && <> to <time>{clock(last)}</time></>} {label}{times > 1 && `: ${times} times`}</li>
        ))}
      </ul>
    )}
    <div class="charts">
      <TimeChart
        title="Traffic" about="Requests per second by how they ended. Goodput is what was answered in time."
        times={times} format={perSecond} hover={hover} marks={happened} stacked empty="no requests in this time"
        series={[
          { label: "in time (goodput)", colour: "s1", values: rates(past, (it) => it.answered - it.late) },
          { label: "late", colour: "s2", values: rates(past, "late") },
          { label: "rejected", colour: "s3", values: rates(past, "rejected") },
          { label: "failed", colour: "s4", values: rates(past, "failed") },
          { label: "cancelled", colour: "s6", optional: true, values: rates(past, "cancelled") },
        ]}
      />
      <TimeChart
        title="Latency" about="From admission to answer. Half of the answers were faster than p50, 9 of 10 faster than p90, 99 of 100 faster than p99, 999 of 1000 faster than p99.9."
        times={times} format={millis} hover={hover} marks={happened} limit={target} empty="no answers in this time"
        series={[
          { label: "p99.9", colour: "s4", values: plain((it) => it.p999Ms) },
          { label: "p99", colour: "s3", values: plain((it) => it.p99Ms) },
          { label: "p90", colour: "s2", values: plain((it) => it.p90Ms) },
          { label: "p50", colour: "s1", values: plain((it) => it.p50Ms) },
        ]}
      />
      <HeatMap
        title="Latency over time" about="How many answers took how long. Two bands are two kinds of requests; a band that rises is a slower model or a longer queue."
        {...heat(model, document, (it) => it.latencyClasses)} label={(it) => millis(2 ** it)} empty="no answers in this time"
      />
      <TimeChart
        title="Where the time goes" about="Mean time that answered requests waited, and mean time that batches ran. A long queue time means too few workers; a long compute time a slow model."
        times={times} format={millis} hover={hover} marks={happened} stacked empty="no answers in this time"
        series={[
          { label: "in the queue", colour: "s2", values: milli(means(past, "queueSecondsSum", "answered")) },
          { label: "computing", colour: "s5", values: milli(means(past, "computeSecondsSum", "batches")) },
        ]}
      />
      <TimeChart
        title="Queue" about="Requests that waited. When the limit is reached, requests are rejected."
        times={times} format={count} hover={hover} marks={happened} least={5} limit={{ value: model.queueMax, label: `limit ${count(model.queueMax)}` }} empty="nobody waited"
        series={[{ label: "waiting", colour: "s2", values: plain((it) => it.waiting) }]}
      />
      <TimeChart
        title="Rejections by reason" about="Requests that were turned away before the model ran them."
        times={times} format={perSecond} hover={hover} marks={happened} stacked empty="nothing was rejected"
        series={rejectionSeries(past)}
      />
      <TimeChart
        title="Batch size" about="Mean number of items in a batch. It grows with the load: that is how a busy server keeps up."
        times={times} format={(value) => (value === null ? "–" : rate(value))} hover={hover} marks={happened} least={1} empty="no batches in this time"
        limit={{ value: model.maxBatchSize, label: `at most ${count(model.maxBatchSize)}` }}
        series={[{ label: "items in a batch", colour: "s1", values: means(past, "items", "batches") }]}
      />
      <TimeChart
        title="Workers" about="Workers that were ready, and how many exited or could not load in the minute before. Exits again and again are a crash loop."
        times={times} format={count} hover={hover} marks={happened} least={2} empty="no workers"
        series={[
          { label: "ready", colour: "s5", values: plain((it) => it.workersReady) },
          { label: "exits and failed loads in a minute", colour: "s3", values: within(past, 60, (it) => it.exits + it.loadFailures) },
        ]}
      />
      <TimeChart
        title="Memory of the workers" about="Of all workers of this version together. A line that only rises is a leak."
        times={times} format={bytes} hover={hover} marks={happened} empty="not known"
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
