// The versions of a model beside each other: what each of them does, and a slider for the share of requests that it gets.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { change, getJson } from "../data/api";
import { millis, percent, rate } from "../data/format";
import { recent, recentQuantile } from "../data/history";
import type { Shares, TrafficDocument } from "../data/traffic";
import { moved, ruleWords, sameShares, sharesOf, withShares } from "../data/traffic";
import type { Model } from "../data/types";
import { keyOf } from "../data/types";
import { state } from "../state";
import { Dialog } from "./dialog";
import { errorShare, RATE_SECONDS } from "./models";
import { modelLink } from "./route";

export function Traffic({ versions }: { versions: readonly Model[] }): JSX.Element {
  const now = sharesOf(versions);
  const [draft, setDraft] = useState<Shares | null>(null);
  const [asking, setAsking] = useState<TrafficDocument | null>(null);
  const [problem, setProblem] = useState("");
  const name = versions[0]?.name ?? "";
  const path = `models/${encodeURIComponent(name)}/traffic`;
  const rest = versions.find((it) => it.isDefault)?.version ?? "";
  const shown = draft ?? now;
  const changed = draft !== null && !sameShares(draft, now);
  const ask = async (): Promise<void> => {
    try {
      setAsking(await getJson<TrafficDocument>(path));
      setProblem("");
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  };
  const run = async (): Promise<void> => {
    if (asking) await change("PUT", path, withShares(asking, shown));
    setDraft(null);
    state.tell(`${name}: ${words(shown)}.`);
  };
  return (
    <>
      <p class="summary">Requests that name no version are shared by the versions of {name}.</p>
      <table class="models traffic">
        <thead>
          <tr>
            <th>Version</th>
            <th>Share</th>
            <th class="n">Traffic</th>
            <th class="n">p50</th>
            <th class="n">p99</th>
            <th class="n">Errors</th>
          </tr>
        </thead>
        <tbody>
          {versions.map((it) => (
            <Version key={it.version} model={it} share={shown[it.version] ?? 0} move={(to) => setDraft(moved(shown, it.version, to, rest))} />
          ))}
        </tbody>
      </table>
      {problem && <p class="callout bad" role="alert">{problem}</p>}
      <div class="buttons">
        <button type="button" disabled={draft === null} onClick={() => setDraft(null)}>Undo</button>
        <button type="button" class="primary" disabled={!changed} onClick={() => void ask()}>Change shares…</button>
      </div>
      {asking && (
        <Dialog title={`Change the shares of ${name}`} action="Change" run={run} close={() => setAsking(null)}>
          <p>
            From now on: <b>{words(shown)}</b>. Before: {words(now)}. A share that grows takes clients from the others and gives
            none back. Requests that name a version are not concerned.
          </p>
          {ruleWords(asking).map((it) => <p key={it}>{it}</p>)}
        </Dialog>
      )}
    </>
  );
}

/** Shares in words, the largest first. */
function words(shares: Shares): string {
  const sorted = Object.entries(shares).sort(([, one], [, other]) => other - one);
  return sorted.map(([version, share]) => `${version} gets ${share} %`).join(", ");
}

function Version({ model, share, move }: { model: Model; share: number; move(percent: number): void }): JSX.Element {
  const key = keyOf(model);
  const now = recent(state.history.samples, key, RATE_SECONDS);
  const errors = errorShare(now);
  return (
    <tr class={model.returned ? "warn" : ""}>
      <th scope="row">
        <a href={modelLink(key)} aria-label={`Version ${model.version}`}>{model.version}</a>
        {model.isDefault && <span class="tag">default</span>}
        {model.shadowShare !== null && <span class="tag">shadow</span>}
        {model.returned && <span class="tag" title={model.returned}>returned</span>}
      </th>
      <td data-label="Share" class="share">
        <input
          type="range"
          min="0"
          max="100"
          step="1"
          value={share}
          aria-label={`Share of version ${model.version} in percent`}
          onInput={(event) => move(Number(event.currentTarget.value))}
        />
        <output>{share} %</output>
      </td>
      <td class="n" data-label="Traffic">{rate(now ? now.requests / now.seconds : null)}<small>/s</small></td>
      <td class="n" data-label="p50">{millis(recentQuantile(state.history.samples, key, "p50Ms"))}</td>
      <td class="n" data-label="p99">{millis(recentQuantile(state.history.samples, key, "p99Ms"))}</td>
      <td class={`n ${errors > 0.1 ? "bad" : errors > 0.01 ? "warn" : ""}`} data-label="Errors">{now && now.requests > 0 ? percent(errors) : "–"}</td>
    </tr>
  );
}
