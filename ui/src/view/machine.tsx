// The server and its machine: what all models share.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Meter } from "../charts/bars";
import { Spark } from "../charts/spark";
import { change } from "../data/api";
import { bytes, count, duration, percent } from "../data/format";
import type { Overview } from "../data/types";
import { state } from "../state";
import { Dialog } from "./dialog";

export function MachinePanel({ document }: { document: Overview }): JSX.Element {
  const { server, machine, gpus } = document;
  const [changing, setChanging] = useState(false);
  const documents = state.history.documents;
  return (
    <section class="card" aria-labelledby="server-title">
      <div class="row head">
        <h2 id="server-title">Server</h2>
      </div>
      <div class="tiles">
        <dl class="facts">
          <div><dt>State</dt><dd>{server.stateText || server.state}</dd></div>
          <div><dt>Host</dt><dd>{server.hostname} <small>(process {server.pid})</small></dd></div>
          <div><dt>Up for</dt><dd>{duration(server.uptimeSeconds)}</dd></div>
          <div><dt>Version</dt><dd>{server.version}{server.dialect === "torchserve" ? " as TorchServe" : ""}</dd></div>
          <div><dt>Connections</dt><dd>{count(server.connections)}</dd></div>
          <div><dt>Memory</dt><dd>{bytes(server.memoryBytes)} <small>without workers</small></dd></div>
          <div>
            <dt>Log level</dt>
            <dd>
              {server.logLevel ?? "not known"}{" "}
              <button type="button" class="small" aria-label="Change the log level" onClick={() => setChanging(true)}>Change…</button>
            </dd>
          </div>
        </dl>
        <div class="meters">
          {machine && (
            <>
              <Meter label="Processors" share={machine.cpuPercent === null ? null : machine.cpuPercent / 100} text={machine.cpuPercent === null ? "not known" : percent(machine.cpuPercent / 100)} />
              <Meter
                label="Memory"
                share={machine.memoryUsedBytes / machine.memoryTotalBytes}
                text={`${bytes(machine.memoryUsedBytes)} of ${bytes(machine.memoryTotalBytes)}`}
              />
            </>
          )}
          {server.requestMemoryLimitBytes > 0 && (
            <Meter
              label="Requests and answers in memory"
              share={server.requestMemoryBytes / server.requestMemoryLimitBytes}
              text={`${bytes(server.requestMemoryBytes)} of ${bytes(server.requestMemoryLimitBytes)}`}
            />
          )}
          {gpus.map((gpu) => (
            <div key={gpu.id} class="gpu">
              <Meter
                label={`GPU ${gpu.id} busy`}
                share={gpu.utilizationPercent === null ? null : gpu.utilizationPercent / 100}
                text={gpu.utilizationPercent === null ? "not known" : percent(gpu.utilizationPercent / 100)}
              />
              <Meter
                label={`GPU ${gpu.id} memory`}
                share={gpu.memoryTotalBytes ? (gpu.memoryUsedBytes ?? 0) / gpu.memoryTotalBytes : null}
                text={gpu.memoryTotalBytes === null ? "not known" : `${bytes(gpu.memoryUsedBytes)} of ${bytes(gpu.memoryTotalBytes)}`}
              />
              <Spark
                label={`How busy GPU ${gpu.id} was since this page was opened`}
                width={200}
                values={documents.map((it) => it.gpus.find((other) => other.id === gpu.id)?.utilizationPercent ?? null)}
              />
            </div>
          ))}
          {gpus.length === 0 && <p class="empty">No GPU on this machine.</p>}
        </div>
      </div>
      {changing && <LogLevel now={server.logLevel ?? "info"} close={() => setChanging(false)} />}
    </section>
  );
}

const LEVELS = ["error", "warn", "info", "debug", "trace"];

export function LogLevel({ now, close }: { now: string; close(): void }): JSX.Element {
  const [level, setLevel] = useState(now);
  const run = async (): Promise<void> => {
    await change("PUT", "log-level", { level: level.trim() });
    state.tell(`The log level is now ${level.trim()}.`);
  };
  return (
    <Dialog title="Change the log level" action="Change" run={run} close={close} disabled={!level.trim()}>
      <div class="fields">
        <label class="wide">
          Log level
          <input list="levels" value={level} onInput={(event) => setLevel(event.currentTarget.value)} />
          <datalist id="levels">{LEVELS.map((it) => <option key={it} value={it} />)}</datalist>
        </label>
      </div>
      <p>
        One of {LEVELS.join(", ")}; or by part of the server: <code>info,jitney_engine=debug</code>. It holds until the server is restarted.
        {/debug|trace/.test(level) && " At this level a busy server writes very many lines: set it back when you are done."}
      </p>
    </Dialog>
  );
}
