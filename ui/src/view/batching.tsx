// How a version's requests were batched: sizes, reasons, the learned curve, rejections.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { NamedBars, SizeBars } from "../charts/bars";
import type { Measured } from "../charts/curve";
import { Curve } from "../charts/curve";
import { count, millis, percent } from "../data/format";
import { difference, grown, quantile, shareBetween, sizesBetween, total } from "../data/histogram";
import type { Counts, Model, Overview } from "../data/types";
import { keyOf } from "../data/types";
import { DISPATCHES, REJECTION_LABELS, REJECTIONS } from "../data/words";
import { state } from "../state";
import { SizesOverTime } from "./past";

const LIVE_SECONDS = 60;

export function Batching({ model, document }: { model: Model; document: Overview }): JSX.Element {
  const [since, setSince] = useState<"live" | "all">("live");
  const before = since === "live" ? state.history.modelBefore(keyOf(model), LIVE_SECONDS) : undefined;
  const nothing: Counts = since === "live" && !before ? model.dispatches : {};
  const dispatches = grown(model.dispatches, before?.dispatches ?? nothing);
  const sizes = since === "live" && !before ? [] : sizesBetween(model.batchSizes, before?.batchSizes);
  const batches = sizes.reduce((sum, it) => sum + it.batches, 0);
  const items = sizes.reduce((sum, it) => sum + it.size * it.batches, 0);
  const rejections = grown(model.rejections, before?.rejections ?? (since === "live" ? model.rejections : {}));
  const measured = measuredOf(model);
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
        <SizesOverTime model={model} document={document} />
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
  const endpoints = Object.entries(model.endpoints);
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
function measuredOf(model: Model): Measured[] {
  const before = state.history.modelBefore(keyOf(model), LIVE_SECONDS);
  const sizes = before ? sizesBetween(model.batchSizes, before.batchSizes) : [];
  return sizes.flatMap(({ size, answered, computeSeconds }) => (answered > 0 ? [{ size, batches: answered, ms: (computeSeconds / answered) * 1000 }] : []));
}

function predictionWords(model: Model): string {
  const before = state.history.modelBefore(keyOf(model), LIVE_SECONDS);
  const ratios = before ? difference(model.predictionRatio, before.predictionRatio) : model.predictionRatio;
  const middle = quantile(ratios, 0.5);
  if (middle === null || total(ratios) < 5) return "Too few batches to tell how good the predictions are.";
  const near = shareBetween(ratios, 0.8, 1.25);
  return `${percent(near)} of the batches took between 0.8 and 1.25 times the predicted time.`;
}
