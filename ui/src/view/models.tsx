// The first screen: one line for each version, those with problems first.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Spark } from "../charts/spark";
import { count, millis, percent, rate } from "../data/format";
import type { Recent } from "../data/history";
import { grid, knownSeconds, rates, recent, recentQuantile } from "../data/history";
import { healthWords, problemsOf } from "../data/problems";
import type { Model, Overview, Problem } from "../data/types";
import { keyOf } from "../data/types";
import { state } from "../state";
import { Register } from "./controls";
import { modelLink } from "./route";

export const RATE_SECONDS = 10;
const FILTER_FROM = 8;

export function Models({ document }: { document: Overview }): JSX.Element {
  const [filter, setFilter] = useState("");
  const [registering, setRegistering] = useState(false);
  const worst = new Map<string, number>();
  const weight = { bad: 3, warn: 2, note: 1 };
  for (const it of document.problems) if (it.model) worst.set(it.model, Math.max(worst.get(it.model) ?? 0, weight[it.tone]));
  const rows = document.models
    .filter((it) => keyOf(it).toLowerCase().includes(filter.toLowerCase()))
    .sort((one, other) => (worst.get(keyOf(other)) ?? 0) - (worst.get(keyOf(one)) ?? 0) || (keyOf(one) < keyOf(other) ? -1 : 1));
  return (
    <section class="card" aria-labelledby="models-title">
      <div class="row head">
        <h2 id="models-title">Models</h2>
        <div class="buttons">
          {document.models.length >= FILTER_FROM && (
            <input type="search" aria-label="Show models whose name contains" placeholder="Find a model" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
          )}
          {document.server.modelApi && <button type="button" onClick={() => setRegistering(true)}>Register…</button>}
        </div>
      </div>
      {document.models.length === 0 ? (
        <p class="empty">No model is registered yet.</p>
      ) : (
        <table class="models">
          <thead>
            <tr>
              <th>Model</th>
              <th>State</th>
              <th class="wide-only" title="Requests per second, the last ten minutes at most">Trend</th>
              <th class="n" title="Requests per second">Traffic</th>
              <th class="n" title="Answers in time per second">Goodput</th>
              <th class="n" title="99 of 100 answers were faster, in the last seconds that had some">p99</th>
              <th class="n" title="Requests that wait">Queue</th>
              <th class="n" title="Workers that are ready, of those wanted">Workers</th>
              <th class="n" title="Requests rejected or failed, last 10 seconds">Errors</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((it) => <Row key={keyOf(it)} model={it} problems={problemsOf(document, it)} time={document.time} worst={worst.get(keyOf(it)) ?? 0} />)}
          </tbody>
        </table>
      )}
      {rows.length === 0 && document.models.length > 0 && <p class="empty">No model has this in its name.</p>}
      {registering && <Register close={() => setRegistering(false)} />}
    </section>
  );
}

const TONES = ["", "", "warn", "bad"];

function Row({ model, problems, time, worst }: { model: Model; problems: Problem[]; time: number; worst: number }): JSX.Element {
  const key = keyOf(model);
  const words = healthWords(model.state, problems);
  const now = recent(state.history.samples, key, RATE_SECONDS);
  const past = grid(state.history.samples, key, time, Math.min(600, knownSeconds(state.history.samples, key)), 60);
  const p99 = recentQuantile(state.history.samples, key, "p99Ms");
  const ready = model.workers.filter((it) => it.state === "ready").length;
  const errors = errorShare(now);
  const late = model.maxLatencyMs !== null && p99 !== null && p99 > model.maxLatencyMs;
  const go = (event: MouseEvent): void => {
    if (!(event.target instanceof HTMLAnchorElement) && !getSelection()?.toString()) location.hash = modelLink(key);
  };
  return (
    <tr onClick={go} class={TONES[worst] ?? ""}>
      <th scope="row">
        <a href={modelLink(key)}>{model.name}</a> <span class="version">{model.version}</span>
        {model.isDefault && <span class="tag" title="Requests without a version go here">default</span>}
        {model.share !== null && <span class="tag" title="Its share of the requests without a version">{percent(model.share)} of traffic</span>}
      </th>
      <td data-label="State" class={`state ${words.tone}`} title={model.stateText}>
        <span aria-hidden="true">{words.mark}</span> {words.label}
      </td>
      <td class="wide-only">
        <Spark values={rates(past, "requests")} label={`Requests of ${key} over the last minutes`} width={110} />
      </td>
      <td class="n" data-label="Traffic">{rate(now ? now.requests / now.seconds : null)}<small>/s</small></td>
      <td class="n" data-label="Goodput">{rate(now ? Math.max(0, now.answered - now.late) / now.seconds : null)}<small>/s</small></td>
      <td class={`n ${late ? "warn" : ""}`} data-label="p99">{millis(p99)}</td>
      <td class={`n ${model.waiting >= model.queueMax * 0.8 && model.queueMax > 4 ? "warn" : ""}`} data-label="Queue">
        {count(model.waiting)}<small> of {count(model.queueMax)}</small>
      </td>
      <td class={`n ${ready < model.workersMin || ready === 0 ? "warn" : ""}`} data-label="Workers">
        {ready}<small> of {Math.max(model.workersMin, model.workers.length)}</small>
      </td>
      <td class={`n ${errors > 0.1 ? "bad" : errors > 0.01 ? "warn" : ""}`} data-label="Errors" title={errorWords(now)}>
        {now && now.requests > 0 ? percent(errors) : "–"}
      </td>
    </tr>
  );
}

export function errorShare(now: Recent | null): number {
  if (!now) return 0;
  const asked = Math.max(now.requests, now.answered + now.rejected + now.failed);
  return asked > 0 ? (now.rejected + now.failed) / asked : 0;
}

function errorWords(now: Recent | null): string {
  return now ? `${count(now.rejected)} rejected and ${count(now.failed)} failed of ${count(now.requests)} in ${Math.round(now.seconds)} s` : "";
}
