// The frame of all pages: who this server is, whether what is shown is fresh, and where to go.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { readKey } from "../data/api";
import { applications } from "../data/applications";
import { clock, duration } from "../data/format";
import { allWell, grouped, healthWords } from "../data/problems";
import type { Overview } from "../data/types";
import { state, useChanges } from "../state";
import { ApplicationGraph } from "./applications";
import { Headline } from "./headline";
import { Logs } from "./logs";
import { MachinePanel } from "./machine";
import { Card } from "./card";
import { ModelPage } from "./model";
import { Models } from "./models";
import type { Tab } from "./route";
import { useRoute } from "./route";
import { ThemeSwitch } from "./theme";

const STALE_MS = 5000;

export function App(): JSX.Element {
  useChanges();
  const route = useRoute();
  const { document: shown, link } = state;
  useTitle(shown);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => {
        event.preventDefault();
        document.querySelector<HTMLElement>("main")?.focus();
      }}>Skip to the content</a>
      <Header document={shown} page={route.page} />
      <main id="main" tabIndex={-1}>
        {link.state === "needsKey" ? (
          <Key message={link.message} />
        ) : !shown ? (
          <p class="waiting" role="status">{link.state === "lost" ? `${link.message} Trying again…` : "Waiting for the server…"}</p>
        ) : (
          <>
            <Freshness />
            {route.page === "models" && (
              <>
                <Headline document={shown} problems={grouped(shown.problems)} well={allWell(shown, state.history)} />
                <Models document={shown} />
                {applications(shown.models).map((it) => <Card key={it.root} title={`Parts of ${it.root}`}><ApplicationGraph application={it} document={shown} /></Card>)}
                <MachinePanel document={shown} />
              </>
            )}
            {route.page === "model" && <OneModel document={shown} name={route.name} version={route.version} tab={route.tab} />}
            {route.page === "logs" && <LogPage key={`${route.model} ${route.contains}`} model={route.model} contains={route.contains} />}
          </>
        )}
      </main>
      <div class="notices" role="status" aria-live="polite">
        {state.notices.map((it) => <p key={it.id}>{it.text}</p>)}
      </div>
    </>
  );
}

function LogPage({ model, contains = "" }: { model: string | undefined; contains: string | undefined }): JSX.Element {
  const first = model && !contains ? "warn" : contains ? "debug" : "info";
  return <Card title={model ? `Log of ${model}` : "Log"}><Logs {...(model ? { model } : {})} first={first} text={contains} height="tall" /></Card>;
}

function OneModel({ document, name, version, tab }: { document: Overview; name: string; version: string; tab: Tab }): JSX.Element {
  const model = document.models.find((it) => it.name === name && it.version === version);
  if (!model) {
    return <div class="title"><a class="back" href="#/">‹ All models</a><p>{name} {version} is not registered (any more).</p></div>;
  }
  return <ModelPage key={`${name}/${version}`} model={model} document={document} tab={tab} />;
}

function Header({ document: shown, page }: { document: Overview | null; page: string }): JSX.Element {
  const words = shown ? healthWords(shown.server.state, shown.problems) : null;
  return (
    <header>
      <a class="brand" href="#/">Jitney</a>
      {shown && words && (
        <span class="server">
          <span class={`state ${words.tone}`} title={shown.server.stateText}><span aria-hidden="true">{words.mark}</span> {words.label}</span>
          <span class="host">{shown.server.hostname}</span>
        </span>
      )}
      <Live />
      <nav aria-label="Pages">
        <a href="#/" aria-current={page === "logs" ? undefined : "page"}>Models</a>
        <a href="#/logs" aria-current={page === "logs" ? "page" : undefined}>Log</a>
      </nav>
      <div class="tools">
        <button type="button" aria-pressed={state.held} aria-label={state.held ? "Go on" : "Hold"} title="Keep what is shown as it is" onClick={() => state.hold(!state.held)}>
          <span aria-hidden="true">{state.held ? "▶" : "❚❚"}</span> <span class="text">{state.held ? "Go on" : "Hold"}</span>
        </button>
        <ThemeSwitch />
      </div>
    </header>
  );
}

function Live(): JSX.Element {
  const { link, held } = state;
  const [tone, text] = held
    ? ["warn", "held"]
    : link.state === "live"
      ? ["good", "live"]
      : link.state === "paused"
        ? ["quiet", "paused"]
        : link.state === "lost"
          ? ["bad", "not live"]
          : ["note", "connecting"];
  return <span class={`live ${tone}`}><i aria-hidden="true" /> {text}</span>;
}

/** Says when what is shown is old, and since when. */
function Freshness(): JSX.Element | null {
  const { link, heardAt, held } = state;
  const age = Date.now() - heardAt;
  if (held) return <p class="stale" role="status">The display is held: what is shown is of {clock(state.document?.time ?? 0)}. “Go on” shows the present again.</p>;
  if (link.state === "live" || age < STALE_MS) return null;
  const again = link.state === "lost" ? ` Next attempt in ${Math.max(0, Math.ceil((link.retryAt - Date.now()) / 1000))} s.` : "";
  const why = link.state === "lost" ? ` ${link.message}` : "";
  return (
    <p class="stale bad" role="status">
      <b>Not live: what is shown is {duration(age / 1000)} old.</b>{why}{again}{" "}
      <button type="button" class="small" onClick={() => state.reconnect()}>Try now</button>
    </p>
  );
}

function Key({ message }: { message: string }): JSX.Element {
  const [key, setKey] = useState("");
  return (
    <form class="card key" onSubmit={(event) => {
      event.preventDefault();
      state.giveKey(key);
    }}>
      <h1>This server asks for a key</h1>
      <p>It is the management key in <code>key_file.json</code>, in the directory in which the server was started. It is kept until this tab is closed.</p>
      {readKey() && <p class="callout bad" role="alert"><b>The key was not taken.</b> {message}</p>}
      <div class="fields">
        <label class="wide">
          Management key
          <input type="password" autocomplete="off" autofocus required value={key} onInput={(event) => setKey(event.currentTarget.value)} />
        </label>
      </div>
      <div class="buttons"><button type="submit" class="primary">Open</button></div>
    </form>
  );
}

/** The tab says it too: a person may look at another one. */
function useTitle(shown: Overview | null): void {
  const bad = shown?.problems.filter((it) => it.tone !== "note").length;
  const title = `${bad ? `(${bad}) ` : ""}${shown ? `${shown.server.hostname} · ` : ""}Jitney`;
  useEffect(() => {
    document.title = title;
  }, [title]);
}
