// The settings that can be changed while a model serves.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { change, getJson, modelPath } from "../data/api";
import type { LiveSetting, Model, Overview } from "../data/types";
import { keyOf } from "../data/types";
import { state } from "../state";
import { Dialog } from "./dialog";

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

function EditSetting({ model, setting, close }: { model: Model; setting: LiveSetting; close(): void }): JSX.Element {
  const [value, setValue] = useState(setting.value);
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
