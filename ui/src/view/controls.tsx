// Everything that changes a model: workers, default version, removal, settings, registration.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { change, getJson, modelPath } from "../data/api";
import { plural } from "../data/format";
import type { LiveSetting, Model, Overview } from "../data/types";
import { keyOf } from "../data/types";
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

function Scale({ model, close }: About): JSX.Element {
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

function MakeDefault({ model, now, close }: About & { now: Model | undefined }): JSX.Element {
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

export function Settings({ model }: { model: Model }): JSX.Element {
  const [editing, setEditing] = useState<LiveSetting | null>(null);
  if (model.liveSettings.length === 0) return <p class="empty">This model has no settings that can be changed while it runs.</p>;
  return (
    <>
      <ul class="settings">
        {model.liveSettings.map((it) => (
          <li key={it.name}>
            <div class="row">
              <span>
                <code>{it.name}</code> <b>{shown(it)}</b>
              </span>
              <button type="button" aria-label={`Change ${it.name}`} onClick={() => setEditing(it)}>Change…</button>
            </div>
            <small class="about">{sentence(it.about)}{it.source ? ` From: ${it.source}.` : ""}</small>
          </li>
        ))}
      </ul>
      {editing && <EditSetting model={model} setting={editing} close={() => setEditing(null)} />}
    </>
  );
}

/** Whether the server took a value: TorchServe's parameters are passed over where they cannot be read. */
async function taken(model: Model, setting: LiveSetting, value: string): Promise<void> {
  const now = (await getJson<Overview>("overview")).models.find((it) => keyOf(it) === keyOf(model));
  const found = now?.liveSettings.find((it) => it.name === setting.name);
  const plain = (text: string | null): string => (text ?? "").replace(/\s*ms$/, "");
  if (found && plain(found.value) === plain(setting.value) && plain(value) !== plain(setting.value)) {
    throw new Error(`The server did not take “${value}”; it still has ${shown(found)}.`);
  }
}

/** A value as it is read: a bare time is in milliseconds. */
function shown(setting: LiveSetting): string {
  if (!setting.value) return "not set";
  return setting.kind === "time" && /^[\d.]+$/.test(setting.value) ? `${setting.value} ms` : setting.value;
}

function sentence(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function EditSetting({ model, setting, close }: About & { setting: LiveSetting }): JSX.Element {
  const [value, setValue] = useState(setting.value ?? "");
  const run = async (): Promise<void> => {
    const query = new URLSearchParams({ [setting.parameter]: value.trim() });
    await change("PUT", `${modelPath(model.name, model.version)}?${query}`);
    await taken(model, setting, value.trim());
    state.tell(`${setting.name} of ${model.name} ${model.version} is now ${value.trim() || "not set"}.`);
  };
  const choices = setting.kind === "flag" ? ["true", "false"] : setting.choices;
  return (
    <Dialog title={`Change ${setting.name} of ${model.name} ${model.version}`} action="Change" run={run} close={close}>
      <p>{sentence(setting.about)}</p>
      <div class="fields">
        <label>
          {setting.name} <small>{KINDS[setting.kind] ?? ""}</small>
          {choices.length > 0 ? (
            <select value={value} onChange={(event) => setValue(event.currentTarget.value)}>
              {choices.map((it) => <option key={it}>{it}</option>)}
            </select>
          ) : (
            <input
              value={value}
              type={setting.kind === "whole" ? "number" : "text"}
              min={setting.kind === "whole" ? 1 : undefined}
              required={setting.kind === "whole"}
              onInput={(event) => setValue(event.currentTarget.value)}
            />
          )}
        </label>
      </div>
      <p>
        Now: <b>{shown(setting)}</b>. The new value holds from the next batch on, and until the server is restarted; workers stay as they are.
      </p>
    </Dialog>
  );
}

const KINDS: Record<string, string> = {
  whole: "(a whole number)",
  time: "(milliseconds, or a time such as 50ms or 2s)",
  size: "(a size such as 64MiB)",
};

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
