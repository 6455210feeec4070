// A form to try a version with what it takes: JSON, the fields of a form, a text or a file.
//
// It asks the management port, which answers as the inference port does: that one may be another origin.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { getJson, send } from "../data/api";
import type { ApiDocument, Field, Filled, Operation } from "../data/forms";
import { headersOf, operationsOf } from "../data/forms";
import type { Model } from "../data/types";

const AT = "dashboard/try";
const SHOWN_MAX = 100_000;

export function Try({ model, filled }: { model: Model; filled: Filled | null }): JSX.Element {
  const [operations, setOperations] = useState<Operation[]>([]);
  const [chosen, choose] = useState(0);
  const [key, setKey] = useState("");
  useEffect(() => {
    const none: ApiDocument = { paths: {} };
    void getJson<ApiDocument>(`${AT}/openapi.json`, key).catch(() => none).then((it) => setOperations(operationsOf(model, it)));
  }, [model.name, model.version, model.isDefault, key]);
  const wanted = filled ? operations.findIndex((it) => endpointOf(it.path) === endpointOf(filled.path)) : -1;
  const at = wanted < 0 ? chosen : wanted;
  const operation = operations[at];
  if (!operation) return <p class="empty">Asking what it takes…</p>;
  return (
    <>
      {operations.length > 1 && !filled && (
        <div class="fields">
          <label>Endpoint
            <select value={at} onChange={(event) => choose(event.currentTarget.selectedIndex)}>
              {operations.map((it, index) => <option key={it.path} value={index}>{it.path}</option>)}
            </select>
          </label>
        </div>
      )}
      <TryForm key={filled ? filled.path + filled.headers + String(filled.body) : operation.path} operation={operation} filled={filled} storedKey={key} setKey={setKey} />
    </>
  );
}

/** What follows the model in a path, by whichever way it names the model. */
function endpointOf(path: string): string {
  const parts = path.slice(1).split("/");
  if (parts[0] === "v2") return path;
  return parts.slice(parts[0] === "predictions" || parts[0] === "explanations" ? 3 : 1).join("/");
}

interface FormProps {
  operation: Operation;
  filled: Filled | null;
  /** The key for predictions, where the dashboard's own does not open them. */
  storedKey: string;
  setKey(key: string): void;
}

function TryForm({ operation, filled, storedKey, setKey }: FormProps): JSX.Element {
  const [path, setPath] = useState(filled?.path ?? operation.path);
  const [headers, setHeaders] = useState(filled?.headers ?? "");
  const [text, setText] = useState(typeof filled?.body === "string" ? filled.body : operation.text);
  const [kept, keep] = useState(filled?.body instanceof Blob ? filled.body : null);
  const keyField = useRef<HTMLInputElement>(null);
  const [answer, setAnswer] = useState<Shown | null>(null);
  const running = useRef<AbortController | null>(null);
  useEffect(() => () => running.current?.abort(), []);

  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const control = new AbortController();
    running.current?.abort();
    running.current = control;
    const show = (it: Shown): void => {
      if (!control.signal.aborted) setAnswer(it);
    };
    const { body, type } = kept ? { body: kept, type: "" } : bodyOf(operation, text, event.currentTarget as HTMLFormElement);
    const all = new Headers(type ? { "Content-Type": type } : {});
    try {
      for (const [name, value] of headersOf(headers)) if (operation.kind !== "form" || name.toLowerCase() !== "content-type") all.set(name, value);
      show({ status: "Waiting…", tone: "note" });
      const options = { method: "POST", body, headers: all, signal: control.signal };
      await read(await send(`${AT}${path.startsWith("/") ? "" : "/"}${path}`, options, keyField.current?.value), show);
    } catch (error) {
      show({ status: "No answer", tone: "bad", text: error instanceof Error ? error.message : String(error) });
    }
    if (running.current === control) running.current = null;
  };
  const stop = (): void => {
    running.current?.abort();
    setAnswer((it) => it && { ...it, status: `${it.status}, stopped`, over: true });
  };
  const waiting = answer !== null && !answer.over;
  return (
    <form class="try" onSubmit={(event) => void submit(event)}>
      <label>Path<input value={path} required spellcheck={false} onInput={(event) => setPath(event.currentTarget.value)} /></label>
      {kept
        ? <p>The body of that request, {kept.size} bytes. <button type="button" class="small" onClick={() => keep(null)}>Another body</button></p>
        : <Body operation={operation} text={text} setText={setText} />}
      <details open={headers !== ""}>
        <summary>Headers</summary>
        <textarea aria-label="Headers, one to a line" rows={4} spellcheck={false} placeholder="x-request-id: my-test" value={headers} onInput={(event) => setHeaders(event.currentTarget.value)} />
      </details>
      {operation.schema && <details><summary>Schema of the body</summary><pre tabIndex={0}>{operation.schema}</pre></details>}
      {(answer?.needsKey || storedKey !== "") && <label>Key for predictions<input ref={keyField} type="password" autocomplete="off" defaultValue={storedKey} onChange={(event) => setKey(event.currentTarget.value)} /></label>}
      <div class="buttons start">
        <button type="submit" class="primary">Send</button>
        {waiting && <button type="button" onClick={stop}>Stop</button>}
      </div>
      <Answer shown={answer} />
    </form>
  );
}

function Body({ operation, text, setText }: { operation: Operation; text: string; setText(text: string): void }): JSX.Element {
  const { kind, fields, accept } = operation;
  const set = (field: Field, index: number): void => {
    try {
      setText(JSON.stringify({ ...(JSON.parse(text || "{}") as object), [field.name]: field.choices[index] }, null, 2));
    } catch {
      // What is typed there is no JSON yet, and stays.
    }
  };
  return (
    <>
      {fields.length > 0 && (
        <div class="fields">
          {fields.map((it) => (
            <label key={it.name}>
              {it.required || kind === "json" ? it.name : `${it.name} (optional)`}
              {it.choices.length > 0 ? (
                <select name={it.name} onChange={(event) => kind === "json" && set(it, event.currentTarget.selectedIndex)}>
                  {it.choices.map((choice) => <option key={String(choice)} selected={String(choice) === it.value}>{String(choice)}</option>)}
                </select>
              ) : <input name={it.name} required={it.required} type={it.isFile ? "file" : "text"} {...(it.isFile ? {} : { defaultValue: it.value })} />}
            </label>
          ))}
        </div>
      )}
      {kind === "any" && <label>File<input type="file" name="file" accept={accept} /></label>}
      {kind !== "form" && !accept && (
        <label>{kind === "json" ? "Body (JSON)" : "or text"}
          <textarea rows={Math.min(14, Math.max(3, text.split("\n").length))} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
      )}
    </>
  );
}

function bodyOf({ kind }: Operation, text: string, form: HTMLFormElement): { body: BodyInit; type: string } {
  if (kind === "json") return { body: text, type: "application/json" };
  const given = new FormData(form);
  if (kind === "form") {
    const empty = [...given].filter(([, it]) => (it instanceof File ? it.size === 0 && !it.name : it === "")).map(([name]) => name);
    for (const name of empty) given.delete(name);
    return { body: given, type: "" };
  }
  const file = given.get("file");
  if (file instanceof File && file.name) return { body: file, type: file.type || "application/octet-stream" };
  return { body: text, type: "text/plain" };
}

interface Shown {
  status: string;
  tone: "good" | "bad" | "note";
  timing?: string;
  text?: string;
  link?: { href: string; name: string; isImage: boolean };
  needsKey?: boolean;
  over?: boolean;
}

/** Text is shown as it comes, since models may stream; what is no text is shown or saved. */
async function read(response: Response, show: (it: Shown) => void): Promise<void> {
  const type = response.headers.get("Content-Type") ?? "";
  const needsKey = response.status === 401 || response.status === 403;
  const head: Shown = { status: `${response.status} ${response.statusText}`.trim(), tone: response.ok ? "good" : "bad", timing: response.headers.get("Server-Timing") ?? "", needsKey };
  show(head);
  if (!/^text\/|json|^$/.test(type)) {
    const blob = await response.blob();
    return show({ ...head, over: true, link: { href: URL.createObjectURL(blob), name: `Save ${blob.size} bytes of ${type}`, isImage: type.startsWith("image/") } });
  }
  let text = "";
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) {
    text = (text + next.value).slice(0, SHOWN_MAX);
    show({ ...head, text });
  }
  show({ ...head, text: indented(text) || "(empty)", needsKey: needsKey || text.includes("InvalidKeyException"), over: true });
}

function indented(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // Several documents, one to a piece, stay as they came.
  }
}

function Answer({ shown }: { shown: Shown | null }): JSX.Element {
  return (
    <div class="answer" aria-live="polite" aria-label="Answer" role="region">
      {shown && <p><b class={`state ${shown.tone}`}>{shown.status}</b> <small>{shown.timing}</small></p>}
      {shown?.text && <pre tabIndex={0}>{shown.text}</pre>}
      {shown?.link?.isImage && <img src={shown.link.href} alt="The answer" />}
      {shown?.link && <p><a href={shown.link.href} download="answer">{shown.link.name}</a></p>}
    </div>
  );
}
