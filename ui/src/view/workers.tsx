// Workers: which run, what they hold, how often they were started again, and how they ended.

import type { JSX } from "preact";
import { NamedBars } from "../charts/bars";
import { Spark } from "../charts/spark";
import { ago, bytes, duration, millis, percent, plural, times } from "../data/format";
import { trend } from "../data/history";
import type { Model, Overview, Worker } from "../data/types";
import { keyOf } from "../data/types";
import { EXITS, stateWords } from "../data/words";
import { state } from "../state";

export function Workers({ model, document }: { model: Model; document: Overview }): JSX.Element {
  const exits = Object.entries(model.exits).map(([name, count]) => ({ name: name.replaceAll("_", " "), about: EXITS[name] ?? "", count }));
  const shown = { gpus: model.workers.some((it) => it.gpu !== null), pauses: model.workers.some((it) => it.garbageCollection !== null) };
  return (
    <>
      <p class="summary">
        {model.workers.filter((it) => it.state === "ready").length} of {Math.max(model.workersMin, model.workers.length)} ready
        {model.workersMax > model.workersMin ? `, at most ${model.workersMax}` : ""}.{" "}
        {model.capacity && `The load decides: ${model.capacity}. `}
        {model.restarts ? `Restarted ${times(model.restarts)} since the version was registered.` : "None was ever restarted."}
        {model.loadSeconds !== null && ` Loading takes ${duration(model.loadSeconds)}.`}
      </p>
      {model.lastExit && (
        <p class="callout warn">
          <b>Last exit{model.lastExitTime ? ` ${ago(model.lastExitTime, document.time)}` : ""}:</b> {model.lastExit}
        </p>
      )}
      {model.workers.length === 0 ? (
        <p class="empty">No workers.</p>
      ) : (
        <table class="workers">
          <thead>
            <tr>
              <th>Worker</th>
              <th>State</th>
              <th class="n">Memory</th>
              <th>Change</th>
              <th class="n">Processor</th>
              {shown.gpus && <th class="n">GPU</th>}
              {shown.pauses && <th class="n" title="The longest run of Python's garbage collector since the model was loaded, and all of them">Pauses</th>}
              <th class="n">Restarts</th>
              <th class="n" title="Since it was asked for; restarts do not count">Age</th>
            </tr>
          </thead>
          <tbody>
            {model.workers.map((it) => <WorkerRow key={it.id} worker={it} model={model} document={document} shown={shown} />)}
          </tbody>
        </table>
      )}
      {exits.length > 0 && (
        <>
          <h4>Exits since the version was registered</h4>
          <NamedBars counts={exits} empty="No worker has exited." tone="s3" />
        </>
      )}
    </>
  );
}

/** The columns that some workers have something for. */
type Columns = { gpus: boolean; pauses: boolean };

function WorkerRow({ worker, model, document, shown }: { worker: Worker; model: Model; document: Overview; shown: Columns }): JSX.Element {
  const words = stateWords(worker.state);
  const past = state.history.documents.map((it) => {
    const then = it.models.find((other) => keyOf(other) === keyOf(model))?.workers.find((other) => other.id === worker.id);
    return then?.pid === worker.pid && then.memoryBytes ? ([it.time, then.memoryBytes] as [number, number]) : null;
  });
  const known = past.filter((it) => it !== null);
  const slope = (known.at(-1)?.[0] ?? 0) - (known[0]?.[0] ?? 0) > 30_000 ? (trend(known)?.slope ?? 0) * 60 : null;
  const started = worker.startedAt ? Date.parse(worker.startedAt) : NaN;
  return (
    <tr>
      <th scope="row">{worker.id} {worker.pid ? <small>process {worker.pid}</small> : null}</th>
      <td data-label="State" class={`state ${words.tone}`}>
        <span aria-hidden="true">{words.mark}</span> {words.label}
        {worker.progress ? <small> {worker.progress.what} {worker.progress.done} of {worker.progress.of}</small> : null}
      </td>
      <td class="n" data-label="Memory">{bytes(worker.memoryBytes || null)}{model.memoryLimitBytes ? <small> of {bytes(model.memoryLimitBytes)}</small> : null}</td>
      <td data-label="Change">
        <span class="change">
          <Spark values={past.map((it) => it?.[1] ?? null)} fromZero={false} label={`Memory of worker ${worker.id} since this page was opened`} width={72} />
          <small>{slope === null ? "" : Math.abs(slope) < 100_000 ? "steady" : `${slope > 0 ? "+" : ""}${bytes(slope)}/min`}</small>
        </span>
      </td>
      <td class="n" data-label="Processor">{worker.cpuPercent === null ? "–" : percent(worker.cpuPercent / 100)}{worker.cpus ? <small> on {worker.cpus}</small> : null}</td>
      {shown.gpus && (
        <td class="n" data-label="GPU">{worker.gpu === null ? "–" : `${worker.gpu}`}{worker.gpuMemoryBytes ? <small> {bytes(worker.gpuMemoryBytes)}</small> : null}</td>
      )}
      {shown.pauses && <td class="n" data-label="Pauses">{pauses(worker.garbageCollection)}</td>}
      <td class={`n ${worker.restarts ? "warn" : ""}`} data-label="Restarts">{worker.restarts}</td>
      <td class="n" data-label="Age">{Number.isFinite(started) ? duration(Math.max(0, (document.time - started) / 1000)) : "–"}</td>
    </tr>
  );
}

function pauses(collector: Worker["garbageCollection"]): JSX.Element {
  if (collector === null) return <>–</>;
  return (
    <>
      {millis(collector.longestSeconds * 1000)} <small>{millis(collector.seconds * 1000)} in {plural(collector.runs, "run")}</small>
    </>
  );
}
