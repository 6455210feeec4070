// The last lines of the log, and new ones as they come.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { getJson, Refused } from "../data/api";
import { clock, count } from "../data/format";
import type { Link } from "../data/stream";
import { Stream } from "../data/stream";
import type { LogLine, LogPage } from "../data/types";
import { state } from "../state";

const KEPT = 500;
const ASKED = 200;
const TYPING_MS = 300;
const LEVELS = ["error", "warn", "info", "debug", "trace"];

export function Logs({ model, height = "", first = "info", text = "" }: { model?: string; height?: string; first?: string; text?: string }): JSX.Element {
  const [level, setLevel] = useState(first);
  const [typed, setTyped] = useState(text);
  const [contains, setContains] = useState(text);
  const [lines, setLines] = useState<LogLine[]>([]);
  const [problem, setProblem] = useState<string | null>(null);
  const [dropped, setDropped] = useState(0);
  const [link, setLink] = useState<Link>({ state: "connecting" });
  const place = useRef<HTMLOListElement>(null);
  const follow = useRef(true);

  useEffect(() => {
    const timer = setTimeout(() => setContains(typed), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);

  useEffect(() => {
    const query = new URLSearchParams({ level });
    if (model) query.set("model", model);
    if (contains) query.set("contains", contains);
    let over = false;
    let stream: Stream | null = null;
    setLines([]);
    setProblem(null);
    follow.current = true;
    const waiting: LogLine[] = [];
    let drawing = 0;
    const draw = (): void => {
      drawing = 0;
      const fresh = waiting.splice(0);
      setLines((before) => joined(before, fresh));
    };
    const begin = async (): Promise<void> => {
      try {
        const page = await getJson<LogPage>(`logs?lines=${ASKED}&${query}`);
        if (over) return;
        setLines(page.lines.slice(-KEPT));
      } catch (error) {
        if (over) return;
        const none = error instanceof Refused && error.status === 404;
        setProblem(none ? "This server does not tell its log lines." : error instanceof Error ? error.message : String(error));
        return;
      }
      stream = new Stream({
        path: `logs/stream?lines=50&${query}`,
        quiet: true,
        onLink: setLink,
        onMessage: ({ event, data }) => {
          if (event === "dropped") {
            const { dropped } = JSON.parse(data) as { dropped: number };
            setDropped((before) => before + dropped);
          }
          if (event !== "log" || state.held) return;
          waiting.push(JSON.parse(data) as LogLine);
          if (waiting.length > KEPT) waiting.shift();
          // Many lines at once are drawn once.
          if (!drawing) drawing = window.setTimeout(draw, 200);
        },
      });
    };
    void begin();
    return () => {
      over = true;
      clearTimeout(drawing);
      stream?.close();
    };
  }, [level, contains, model]);

  useEffect(() => {
    const list = place.current;
    if (list && follow.current) list.scrollTop = list.scrollHeight;
  }, [lines]);

  return (
    <>
      <div class="filters">
        <label>
          Level
          <select value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
            {LEVELS.map((it) => <option key={it} value={it}>{it === "error" ? "error" : `${it} and worse`}</option>)}
          </select>
        </label>
        <label class="grow">
          Text
          <input type="search" placeholder="words or an id" value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        </label>
        <span class="link">{linkWords(link)}{dropped > 0 ? `, ${count(dropped)} lines left out` : ""}</span>
      </div>
      {problem ? (
        <p class="empty">{problem}</p>
      ) : lines.length === 0 ? (
        <p class="empty">No lines{contains ? ` with “${contains}”` : ""} of this level{model ? " about this model" : ""} yet.</p>
      ) : (
        <ol
          class={`log ${height}`}
          ref={place}
          tabIndex={0}
          aria-label="Log lines, newest last"
          onScroll={(event) => {
            const list = event.currentTarget;
            follow.current = list.scrollHeight - list.scrollTop - list.clientHeight < 30;
          }}
        >
          {lines.map((it, index) => <Line key={`${it.time} ${index}`} line={it} hideModel={model !== undefined} />)}
        </ol>
      )}
    </>
  );
}

function linkWords(link: Link): string {
  if (link.state === "live") return "live";
  return link.state === "lost" ? "connection lost, trying again" : "";
}

function Line({ line, hideModel }: { line: LogLine; hideModel: boolean }): JSX.Element {
  const level = line.level.toUpperCase();
  const tone = level === "ERROR" ? "bad" : level === "WARN" ? "warn" : level === "INFO" ? "note" : "quiet";
  const fields = Object.entries(line.fields ?? {}).filter(([name]) => !(hideModel && name === "model"));
  return (
    <li>
      <time title={line.time}>{clock(Date.parse(line.time))}</time>
      <span class={`level ${tone}`}>{level}</span>
      <span class="message">
        {line.message}
        {fields.map(([name, value]) => (
          <span key={name} class="field"> {name}=<span>{typeof value === "string" ? value : JSON.stringify(value)}</span></span>
        ))}
      </span>
    </li>
  );
}

/** New lines after old ones; what a reconnect brings again is left out. */
export function joined(before: LogLine[], fresh: LogLine[]): LogLine[] {
  const known = new Set(before.slice(-KEPT).map(identity));
  return [...before, ...fresh.filter((it) => !known.has(identity(it)))].slice(-KEPT);
}

function identity(line: LogLine): string {
  return `${line.time} ${line.target} ${line.message} ${JSON.stringify(line.fields)}`;
}
