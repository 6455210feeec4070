// What changes a model as a whole: workers, default version, removal, registration.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { change, modelPath } from "../data/api";
import { plural } from "../data/format";
import type { Model, Overview } from "../data/types";
import { state } from "../state";
import { Dialog } from "./dialog";

type Open = "scale" | "default" | "unregister" | null;

export function ModelControls({ model, document }: { model: Model; document: Overview }): JSX.Element {
  const [open, setOpen] = useState<Open>(null);
  const close = (): void => setOpen(null);
  const siblings = document.models.filter((it) => it.name === model.name);
  return (
    <div class="buttons start">
      <button type="button" onClick={() => setOpen("scale")}>Scale…</button>
      {!model.isDefault && <button type="button" onClick={() => setOpen("default")}>Make default…</button>}
      {document.server.modelApi && (
        <button type="button" class="danger-line" onClick={() => setOpen("unregister")}>Unregister…</button>
      )}
      {open === "scale" && <Scale model={model} close={close} />}
      {open === "default" && <MakeDefault model={model} now={siblings.find((it) => it.isDefault)} close={close} />}
      {open === "unregister" && <Unregister model={model} others={siblings.length - 1} close={close} />}
    </div>
  );
}

interface About {
  model: Model;
  close(): void;
}

export function Scale({ model, close }: About): JSX.Element {
  const [least, setLeast] = useState(String(model.workersMin));
  const [most, setMost] = useState(String(Math.max(model.workersMax, model.workersMin)));
  const wanted = Number(least);
  const run = async (): Promise<void> => {
    const query = new URLSearchParams({ min_worker: least, max_worker: String(Math.max(wanted, Number(most))) });
    await change("PUT", `${modelPath(model.name, model.version)}?${query}`);
    state.tell(`${model.name} ${model.version}: ${plural(wanted, "worker")} asked for.`);
  };
  return (
    <Dialog title={`Scale ${model.name} ${model.version}`} action="Scale" run={run} close={close} danger={wanted === 0}>
      <div class="fields">
        <label>
          Workers
          <input type="number" min="0" step="1" required value={least} onInput={(event) => {
            setLeast(event.currentTarget.value);
            if (model.workersMin === model.workersMax) setMost(event.currentTarget.value);
          }} />
        </label>
        <label>
          At most
          <input type="number" min="1" step="1" value={most} onInput={(event) => setMost(event.currentTarget.value)} />
        </label>
      </div>
      <p>{scaleWords(model, wanted)}</p>
    </Dialog>
  );
}

export function scaleWords(model: Pick<Model, "workersMin" | "workers">, wanted: number): string {
  const now = Math.max(model.workersMin, model.workers.length);
  if (wanted === 0) return "All workers end after their running batch. Every request is rejected until you scale it up again.";
  if (wanted > now) {
    const more = wanted - now;
    return `${plural(more, "more worker")} ${more === 1 ? "is" : "are"} started. ${more === 1 ? "It loads" : "They load"} the model into memory of ${more === 1 ? "its" : "their"} own; the others go on serving.`;
  }
  if (wanted < now) {
    const fewer = now - wanted;
    return `${plural(fewer, "worker")} ${fewer === 1 ? "ends" : "end"} after the running batch, and the memory is free again. The other ${plural(wanted, "worker")} ${wanted === 1 ? "goes" : "go"} on serving.`;
  }
  return "This is the number of workers that it has now.";
}

export function MakeDefault({ model, now, close }: About & { now: Model | undefined }): JSX.Element {
  const run = async (): Promise<void> => {
    await change("PUT", modelPath(model.name, model.version, "/set-default"));
    state.tell(`${model.version} is now the default version of ${model.name}.`);
  };
  return (
    <Dialog title={`Make ${model.version} the default of ${model.name}`} action="Make default" run={run} close={close}>
      <p>
        Requests that name no version go to <b>{model.version}</b>
        {now ? <> instead of <b>{now.version}</b></> : null} from now on. Requests that name a version are not concerned.
      </p>
      {model.state !== "ready" && <p class="callout warn"><b>Take care:</b> this version is not ready ({model.stateText || model.state}).</p>}
    </Dialog>
  );
}

function Unregister({ model, others, close }: About & { others: number }): JSX.Element {
  const run = async (): Promise<void> => {
    await change("DELETE", modelPath(model.name, model.version));
    state.tell(`${model.name} ${model.version} was unregistered.`);
    location.hash = "#/";
  };
  return (
    <Dialog title={`Unregister ${model.name} ${model.version}`} action="Unregister" danger run={run} close={close}>
      <p>
        New requests for it are answered with 404. Requests that were let in are still answered; then its{" "}
        {plural(model.workers.length, "worker")} {model.workers.length === 1 ? "ends" : "end"} and its files are removed from the server.
        It comes back only when it is registered again.
      </p>
      {others > 0 && model.isDefault && (
        <p class="callout warn"><b>Take care:</b> it is the default version. Make another version the default first.</p>
      )}
    </Dialog>
  );
}

export function Register({ close }: { close(): void }): JSX.Element {
  const [url, setUrl] = useState("");
  const [workers, setWorkers] = useState("1");
  const run = async (): Promise<void> => {
    const query = new URLSearchParams({ url: url.trim(), initial_workers: workers, synchronous: "false" });
    state.tell(await change("POST", `models?${query}`));
  };
  return (
    <Dialog title="Register a model" action="Register" run={run} close={close} disabled={!url.trim()}>
      <div class="fields">
        <label class="wide">
          Archive, file or address
          <input value={url} required placeholder="resnet.mar" onInput={(event) => setUrl(event.currentTarget.value)} />
        </label>
        <label>
          Workers
          <input type="number" min="0" step="1" value={workers} onInput={(event) => setWorkers(event.currentTarget.value)} />
        </label>
      </div>
      <p>The server reads it from its model store or from the address, and starts the workers. Code in it is run on the server.</p>
    </Dialog>
  );
}
