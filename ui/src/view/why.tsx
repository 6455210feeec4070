// Why batches were sent, held back or requests rejected: the batcher's last decisions in words.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getJson, modelPath } from "../data/api";
import { clock, count, plural } from "../data/format";
import type { BatchingReport, Decision, Model } from "../data/types";
import { state } from "../state";

const EVERY_MS = 2000;
const VERDICTS: Record<string, [string, string]> = {
  depart: ["sent", "good"],
  wait: ["waited", "note"],
  refuse: ["rejected", "bad"],
};

interface Seen {
  report: BatchingReport;
  at: number;
}

/** Asks again and again while the page is looked at. */
export function usePolled<T>(path: string, every: number): T | Error | null {
  const [answer, setAnswer] = useState<T | Error | null>(null);
  useEffect(() => {
    let over = false;
    const look = async (): Promise<void> => {
      if (document.hidden || state.held) return;
      try {
        const found = await getJson<T>(path);
        if (!over) setAnswer(() => found);
      } catch (error) {
        if (!over) setAnswer(error instanceof Error ? error : new Error(String(error)));
      }
    };
    setAnswer(null);
    void look();
    const timer = setInterval(() => void look(), every);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [path, every]);
  return answer;
}

export function Why({ model }: { model: Model }): JSX.Element {
  const answer = usePolled<BatchingReport>(modelPath(model.name, model.version, "/batching"), EVERY_MS);
  const [seen, setSeen] = useState<Seen | null>(null);
  useEffect(() => {
    if (answer && !(answer instanceof Error)) setSeen({ report: answer, at: Date.now() });
  }, [answer]);
  if (answer instanceof Error) return <p class="empty">{answer.message}</p>;
  if (!seen) return <p class="empty">Asking…</p>;
  const { report, at } = seen;
  const counts = new Map<string, number>();
  for (const it of report.decisions) counts.set(it.verdict, (counts.get(it.verdict) ?? 0) + 1);
  const summary = [...counts].map(([verdict, n]) => `${count(n)} ${VERDICTS[verdict]?.[0] ?? verdict}`).join(", ");
  return (
    <>
      <p class="summary">
        Policy <b>{report.policy}</b>: {report.how}.
        {report.decisions.length > 0 && ` The last ${plural(report.decisions.length, "decision")}: ${summary}.`}
      </p>
      {report.decisions.length === 0 ? (
        <p class="empty">{model.maxBatchSize === 1 ? "One item at a time: there is nothing to decide." : "No decision yet: nothing was asked of this model."}</p>
      ) : (
        <ol class="decisions" tabIndex={0} aria-label="Last decisions, newest first">
          {alike(report.decisions).map((them) => <Alike key={Math.round((at - (them.at(-1)?.agoMs ?? 0)) / 2000)} decisions={them} at={at} />)}
        </ol>
      )}
    </>
  );
}

/** Neighbours with the same verdict, put together. */
export function alike(decisions: Decision[]): Decision[][] {
  const groups: Decision[][] = [];
  for (const it of decisions) {
    const last = groups.at(-1);
    if (last?.[0]?.verdict === it.verdict) last.push(it);
    else groups.push([it]);
  }
  return groups;
}

/** Several decisions of one kind are one line, which opens. */
function Alike({ decisions, at }: { decisions: Decision[]; at: number }): JSX.Element | null {
  const [newest] = decisions;
  if (!newest) return null;
  if (decisions.length === 1) return <Line decision={newest} at={at} />;
  const [verb, tone] = VERDICTS[newest.verdict] ?? [newest.verdict, "note"];
  return (
    <li class="alike">
      <details>
        <summary>
          <time>{clock(at - newest.agoMs)}</time>
          <span class={`verdict ${tone}`}>{count(decisions.length)} {verb}</span>
          <span>{newest.words}</span>
        </summary>
        <ol>{decisions.map((it, index) => <Line key={index} decision={it} at={at} />)}</ol>
      </details>
    </li>
  );
}

function Line({ decision, at }: { decision: Decision; at: number }): JSX.Element {
  const [verb, tone] = VERDICTS[decision.verdict] ?? [decision.verdict, "note"];
  const time = at - decision.agoMs;
  return (
    <li>
      <time>{clock(time)}.{String(Math.floor(time) % 1000).padStart(3, "0")}</time>
      <span class={`verdict ${tone}`}>{verb}</span>
      <span>{decision.words}</span>
    </li>
  );
}
