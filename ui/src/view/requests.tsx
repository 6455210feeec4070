// Requests of a version: a form to send one, the last that failed, and the slowest of the last minutes.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ask, modelPath } from "../data/api";
import { clock, count, millis } from "../data/format";
import type { Filled } from "../data/forms";
import { filledBy } from "../data/forms";
import type { Model, NotedReport, NotedRequest } from "../data/types";
import { keyOf } from "../data/types";
import { DISPATCHES } from "../data/words";
import { Card } from "./card";
import { logLink } from "./route";
import { Try } from "./try";
import { usePolled } from "./why";

const EVERY_MS = 5000;

export function Requests({ model }: { model: Model }): JSX.Element {
  const answer = usePolled<NotedReport>(modelPath(model.name, model.version, "/requests"), EVERY_MS);
  const [filled, fill] = useState<Filled | null>(null);
  const again = async (request: NotedRequest): Promise<void> => {
    const path = modelPath(model.name, model.version, `/requests/${encodeURIComponent(request.id)}/body`);
    const body = request.hasBody ? await ask(path).then((it) => it.arrayBuffer()).catch(() => null) : null;
    fill(filledBy(request, body));
    scrollTo(0, 0);
  };
  const table = (requests: NotedRequest[], empty: string): JSX.Element => <Noted model={model} requests={requests} empty={empty} again={(it) => void again(it)} />;
  return (
    <>
      <Card title="Try it" extra={filled && <button type="button" class="small" onClick={() => fill(null)}>Begin anew</button>}><Try model={model} filled={filled} /></Card>
      {answer instanceof Error || !answer ? <p class="empty">{answer?.message ?? "Asking…"}</p> : (
        <>
          <Card title="The last that failed">{table(answer.failed, "None has failed since the version was registered.")}</Card>
          <Card title="The slowest of the last ten minutes">{table(answer.slow, "None was answered in the last ten minutes.")}</Card>
        </>
      )}
    </>
  );
}

function Noted({ model, requests, empty, again }: { model: Model; requests: NotedRequest[]; empty: string; again(request: NotedRequest): void }): JSX.Element {
  if (requests.length === 0) return <p class="empty">{empty}</p>;
  return (
    <table class="workers">
      <thead>
        <tr><th>Request</th><th>Ended</th><th class="n">Took</th><th class="n">In the queue</th><th class="n">Computing</th><th class="n">Batch</th><th>What happened</th><th /></tr>
      </thead>
      <tbody>
        {requests.map((it) => (
          <tr key={`${it.id} ${it.time}`}>
            <th scope="row"><a href={logLink(keyOf(model), it.id)} title="Its lines in the log"><code>{it.id}</code></a></th>
            <td data-label="Ended">{clock(Date.parse(it.time))}</td>
            <td class="n" data-label="Took">{millis(it.latencyMs)}</td>
            <td class="n" data-label="In the queue">{millis(it.queueMs)}</td>
            <td class="n" data-label="Computing">{millis(it.computeMs)}</td>
            <td class="n" data-label="Batch">{count(it.batchItems)}{it.attempt && it.attempt > 1 ? <small> attempt {it.attempt}</small> : null}</td>
            <td class="happened" data-label="What happened">{it.error ?? DISPATCHES[it.reason ?? ""] ?? it.reason}</td>
            <td><button type="button" class="small" onClick={() => again(it)}>Try again…</button></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
