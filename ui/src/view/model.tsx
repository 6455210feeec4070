// One version of a model: what came, how long it took, how it was batched, who worked on it.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { NamedBars, SizeBars } from "../charts/bars";
import type { Measured } from "../charts/curve";
import { Curve } from "../charts/curve";
import type { Hover, Series } from "../charts/time";
import { TimeChart } from "../charts/time";
import { modelPath } from "../data/api";
import { ago, bytes, count, millis, percent, rate } from "../data/format";
import { difference, grown, quantile, shareBetween, sizesBetween, total } from "../data/histogram";
import type { Grid } from "../data/history";
import { grid, knownSeconds, means, rates, recent, within } from "../data/history";
import type { Problem } from "../data/problems";
import type { Counts, Model, Overview, Statistics } from "../data/types";
import { keyOf } from "../data/types";
import { DISPATCHES, REJECTION_LABELS, REJECTIONS, stateWords } from "../data/words";
import { state } from "../state";
import { ModelControls, Settings } from "./controls";
import { Headline } from "./headline";
import { Logs } from "./logs";
import { errorShare, RATE_SECONDS, recentQuantile } from "./models";
import { usePolled, Why } from "./why";
import { Workers } from "./workers";

const POINTS = 150;
const LIVE_SECONDS = 60;

export function ModelPage({ model, document, problems }: { model: Model; document: Overview; problems: Problem[] }): JSX.Element {
  const key = keyOf(model);
  const words = stateWords(model.state);
  const own = problems.filter((it) => it.model === key);
  const siblings = document.models.filter((it) => it.name === model.name && it.version !== model.version);
  return (
    <>
      <div class="title">
        <a class="back" href="#/">‹ All models</a>
        <h1>
          {model.name} <span class="version">{model.version}</span>
          {model.isDefault && <span class="tag">default</span>}
          <span class={`state pill ${words.tone}`}><span aria-hidden="true">{words.mark}</span> {words.label}</span>
        </h1>
        <p class="summary">
          {model.stateText}
          {siblings.length > 0 && <> Other versions: {siblings.map((it, at) => <>{at ? ", " : ""}<a href={`#/model/${encodeURIComponent(it.name)}/${encodeURIComponent(it.version)}`}>{it.version}</a></>)}.</>}
        </p>
        <ModelControls model={model} document={document} />
      </div>
      <Headline problems={own} well={model.state === "ready" ? "Nothing is wrong with this version." : model.stateText || words.label} linked={false} />
      {model.lastError && (
        <details class="card error" open={model.state === "failed"}>
          <summary>Last error{model.lastErrorTime ? `, ${ago(model.lastErrorTime, document.time)}` : ""}</summary>
          <pre tabIndex={0}>{model.lastError.trim()}</pre>
        </details>
      )}
      <Numbers model={model} />
      <Charts model={model} document={document} />
      <Batching model={model} />
      <Card title="Workers"><Workers model={model} document={document} /></Card>
      <Card title="Why: the last decisions"><Why model={model} /></Card>
      <div class="pair">
        <Card title="Settings that can be changed now"><Settings model={model} /></Card>
        <Card title="Log of this model"><Logs model={model.name} height="short" /></Card>
      </div>
    </>
  );
}

export function Card({ title, children, extra }: { title: string; children: ComponentChildren; extra?: ComponentChildren }): JSX.Element {
  return (
    <section class="card" aria-label={title}>
      <div class="row head"><h2>{title}</h2>{extra}</div>
      {children}
    </section>
  );
}

function Numbers({ model }: { model: Model }): JSX.Element {
  const now = recent(state.history.samples, keyOf(model), RATE_SECONDS);
  const per = (n: number | undefined): string => (now && n !== undefined ? `${rate(n / now.seconds)}/s` : "–");
  const errors = errorShare(now);
  const ready = model.workers.filter((it) => it.state === "ready").length;
  const tiles: [string, string, string, string?][] = [
    ["Traffic", per(now?.requests), "requests"],
    ["Goodput", per(now ? Math.max(0, now.answered - now.late) : undefined), "answers in time"],
    ["p50", millis(recentQuantile(model, 0.5)), "half are faster"],
    ["p99", millis(recentQuantile(model, 0.99)), model.maxLatencyMs === null ? "1 of 100 is slower" : `target ${millis(model.maxLatencyMs)}`],
    ["Queue", count(model.waiting), `of ${count(model.queueMax)}; ${count(model.running)} in work`],
    ["Batch", now?.batches ? (now.items / now.batches).toFixed(1) : "–", `items, at most ${count(model.maxBatchSize)}`],
    ["Workers", `${ready} of ${Math.max(model.workersMin, model.workers.length)}`, "ready"],
    ["Errors", now && now.requests ? percent(errors) : "–", now ? `${per(now.rejected)} rejected, ${per(now.failed)} failed` : "", errors > 0.1 ? "bad" : errors > 0.01 ? "warn" : ""],
  ];
  return (
    <dl class="numbers">
      {tiles.map(([name, value, about, tone]) => (
        <div key={name} class={tone ?? ""}>
          <dt>{name}</dt>
          <dd>{value}<small>{about}</small></dd>
        </div>
      ))}
    </dl>
  );
}

function Charts({ model, document }: { model: Model; document: Overview }): JSX.Element {
  const [at, set] = useState<number | null>(null);
  const hover: Hover = { at, set };
  const key = keyOf(model);
  const span = Math.min(state.span, knownSeconds(state.history.samples, key));
  const past = grid(state.history.samples, key, document.sample.time, span, POINTS);
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
          { label: "exits and failed loads in a minute", colour: "s3", values: within(past, 60, (it) => (it.exits ?? 0) + (it.loadFailures ?? 0)) },
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

function Batching({ model }: { model: Model }): JSX.Element {
  const [since, setSince] = useState<"live" | "all">("live");
  const before = since === "live" ? state.history.modelBefore(keyOf(model), LIVE_SECONDS) : undefined;
  const nothing: Counts = since === "live" && !before ? model.dispatches : {};
  const dispatches = grown(model.dispatches, before?.dispatches ?? nothing);
  const sizes = since === "live" && !before ? [] : sizesBetween(model.batchSizes, before?.batchSizes);
  const batches = sizes.reduce((sum, it) => sum + it.batches, 0);
  const items = sizes.reduce((sum, it) => sum + it.size * it.batches, 0);
  const rejections = grown(model.rejections, before?.rejections ?? (since === "live" ? model.rejections : {}));
  const measured = useMeasured(model);
  return (
    <section class="card" aria-label="Batching">
      <div class="row head">
        <h2>Batching</h2>
        <div class="switch" role="group" aria-label="Counted since">
          <button type="button" aria-pressed={since === "live"} onClick={() => setSince("live")}>last minute</button>
          <button type="button" aria-pressed={since === "all"} onClick={() => setSince("all")}>since registered</button>
        </div>
      </div>
      <div class="tiles">
        <div>
          <h3>Batch sizes</h3>
          <p class="summary">{batches ? `${count(batches)} batches, ${(items / batches).toFixed(1)} items in the mean, at most ${count(model.maxBatchSize)}` : `at most ${count(model.maxBatchSize)} items`}</p>
          <SizeBars sizes={sizes} largest={model.maxBatchSize} />
        </div>
        <div>
          <h3>Why batches were sent</h3>
          <NamedBars counts={Object.entries(dispatches).map(([name, n]) => ({ name, count: n, about: DISPATCHES[name] ?? "" }))} empty="No batch was sent in this time." />
        </div>
        <div>
          <h3>Learned curve</h3>
          <Curve curve={model.curve} measured={measured} largest={Math.min(model.maxBatchSize, Math.max(8, ...model.curve.map((it) => it.size)))} />
          {model.curve.length > 0 && <p class="summary">{predictionWords(model)}</p>}
        </div>
        <div>
          <h3>Why requests were rejected</h3>
          <NamedBars
            tone="s3"
            counts={Object.entries(rejections).map(([name, n]) => ({ name: REJECTION_LABELS[name] ?? name, count: n, about: REJECTIONS[name] ?? "" }))}
            empty="No request was rejected in this time."
          />
        </div>
      </div>
      <Endpoints model={model} />
    </section>
  );
}

function Endpoints({ model }: { model: Model }): JSX.Element | null {
  const endpoints = Object.entries(model.endpoints ?? {});
  if (endpoints.length === 0) return null;
  return (
    <>
      <h4>Endpoints</h4>
      <ul class="settings">
        {endpoints.map(([name, it]) => (
          <li key={name} class="row">
            <code>{name}</code>
            <span>
              {it.maxBatchSize === null ? "one item at a time" : `at most ${count(it.maxBatchSize)} items in a batch`}
              {it.maxLatencyMs === null ? "" : `, target ${millis(it.maxLatencyMs)}`}
            </span>
          </li>
        ))}
      </ul>
    </>
  );
}

/** What batches of each size took within about the last minute. */
function useMeasured(model: Model): Measured[] {
  const answer = usePolled<Statistics[]>(modelPath(model.name, model.version, "/statistics"), 5000);
  const [past, setPast] = useState<Statistics[]>([]);
  useEffect(() => {
    const found = Array.isArray(answer) ? answer[0] : undefined;
    if (found) setPast((before) => [...before.slice(-12), found]);
    else setPast([]);
  }, [answer]);
  const [first, last] = [past[0], past.at(-1)];
  if (!last) return [];
  return last.sizes.flatMap((it) => {
    const then = past.length > 1 ? first?.sizes.find((other) => other.size === it.size) : undefined;
    const batches = it.answeredBatches - (then?.answeredBatches ?? 0);
    const seconds = it.computeSecondsSum - (then?.computeSecondsSum ?? 0);
    return batches > 0 ? [{ size: it.size, batches, ms: (seconds / batches) * 1000 }] : [];
  });
}

function predictionWords(model: Model): string {
  const before = state.history.modelBefore(keyOf(model), LIVE_SECONDS);
  const ratios = before ? difference(model.predictionRatio, before.predictionRatio) : model.predictionRatio;
  const middle = quantile(ratios, 0.5);
  if (middle === null || total(ratios) < 5) return "Too few batches to tell how good the predictions are.";
  const near = shareBetween(ratios, 0.8, 1.25);
  return `${percent(near)} of the batches took between 0.8 and 1.25 times the predicted time.`;
}
