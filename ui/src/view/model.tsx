// One version of a model: how it is, and one view each of its past, its batches, its workers, its log, its settings.

import type { JSX } from "preact";
import { applicationOf } from "../data/applications";
import { ago, count, millis, percent, rate } from "../data/format";
import type { Quantile } from "../data/history";
import { recent, recentQuantile } from "../data/history";
import { healthWords, problemsOf } from "../data/problems";
import type { Model, Overview } from "../data/types";
import { keyOf } from "../data/types";
import { state } from "../state";
import { ApplicationGraph } from "./applications";
import { Batching } from "./batching";
import { Card } from "./card";
import { ModelControls } from "./controls";
import { Headline } from "./headline";
import { Logs } from "./logs";
import { errorShare, RATE_SECONDS } from "./models";
import { Charts } from "./past";
import { Requests } from "./requests";
import type { Tab } from "./route";
import { modelLink, TABS } from "./route";
import { Settings } from "./settings";
import { Traffic } from "./traffic";
import { Why } from "./why";
import { Workers } from "./workers";

export function ModelPage({ model, document, tab }: { model: Model; document: Overview; tab: Tab }): JSX.Element {
  const key = keyOf(model);
  const own = problemsOf(document, model);
  const words = healthWords(model.state, own);
  const siblings = document.models.filter((it) => it.name === model.name && it.version !== model.version);
  return (
    <>
      <div class="title">
        <a class="back" href="#/">‹ All models</a>
        <h1>
          {model.name} <span class="version">{model.version}</span>
          {model.isDefault && <span class="tag">default</span>}
          {model.share !== null && <span class="tag" title="Its share of the requests without a version">{percent(model.share)} of traffic</span>}
          <span class={`state pill ${words.tone}`}><span aria-hidden="true">{words.mark}</span> {words.label}</span>
        </h1>
        <p class="summary">
          {model.stateText}
          {siblings.length > 0 && <> Other versions: {siblings.map((it, at) => <>{at ? ", " : ""}<a href={`#/model/${encodeURIComponent(it.name)}/${encodeURIComponent(it.version)}`}>{it.version}</a></>)}.</>}
        </p>
        <ModelControls model={model} document={document} />
      </div>
      <Headline document={document} problems={own} well={model.state === "ready" ? "Nothing is wrong with this version." : model.stateText || words.label} linked={false} />
      <nav class="tabs" aria-label="Views of this version">
        {TABS.map((it) => <a key={it} href={modelLink(key, it)} aria-current={it === tab ? "page" : undefined}>{it[0]?.toUpperCase()}{it.slice(1)}</a>)}
      </nav>
      {tab === "overview" && <Now model={model} document={document} />}
      {tab === "batching" && <><Batching model={model} document={document} /><Card title="Why: the last decisions"><Why model={model} /></Card></>}
      {tab === "workers" && <Card title="Workers"><Workers model={model} document={document} /></Card>}
      {tab === "requests" && <Requests model={model} />}
      {tab === "log" && <Card title="Log of this model"><Logs model={model.name} height="tall" /></Card>}
      {tab === "settings" && <Card title="Settings that can be changed now"><Settings model={model} /></Card>}
    </>
  );
}

function Now({ model, document }: { model: Model; document: Overview }): JSX.Element {
  const application = applicationOf(keyOf(model), document.models);
  const versions = document.models.filter((it) => it.name === model.name);
  return (
    <>
      {model.shadowShare !== null && (
        <p class="callout">
          <b>Shadow:</b> it gets copies of {percent(model.shadowShare)} of the requests, and nobody gets its answers.{" "}
          {Object.entries(model.shadowCopies ?? {}).map(([outcome, count]) => `${count} ${outcome}`).join(", ")}
        </p>
      )}
      {model.returned && (
        <p class="callout warn">
          <b>Returned:</b> {model.returned}. It gets no requests without a version and stays loaded.
        </p>
      )}
      {model.lastError && (
        <details class="card error" open={model.state === "failed"}>
          <summary>Last error{model.lastErrorTime ? `, ${ago(model.lastErrorTime, document.time)}` : ""}</summary>
          <pre tabIndex={0}>{model.lastError.trim()}</pre>
        </details>
      )}
      <Numbers model={model} />
      {versions.length > 1 && <Card title="Traffic by version"><Traffic versions={versions} /></Card>}
      {application && <Card title={`Parts of ${application.root}`}><ApplicationGraph application={application} document={document} shown={keyOf(model)} /></Card>}
      <Charts model={model} document={document} />
    </>
  );
}

function Numbers({ model }: { model: Model }): JSX.Element {
  const now = recent(state.history.samples, keyOf(model), RATE_SECONDS);
  const per = (n: number | undefined): string => (now && n !== undefined ? `${rate(n / now.seconds)}/s` : "–");
  const took = (which: Quantile): string => millis(recentQuantile(state.history.samples, keyOf(model), which));
  const errors = errorShare(now);
  const ready = model.workers.filter((it) => it.state === "ready").length;
  const tiles: [string, string, string, string?][] = [
    ["Traffic", per(now?.requests), "requests"],
    ["Goodput", per(now ? Math.max(0, now.answered - now.late) : undefined), "answers in time"],
    ["p50", took("p50Ms"), "half are faster"],
    ["p90", took("p90Ms"), "1 of 10 is slower"],
    ["p99", took("p99Ms"), model.maxLatencyMs === null ? "1 of 100 is slower" : `target ${millis(model.maxLatencyMs)}`],
    ["p99.9", took("p999Ms"), "1 of 1000 is slower"],
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
