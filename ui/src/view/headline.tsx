// The first thing on the page: what is wrong, in words, the worst first. One line each; an open one says what
// to do about it, and has the buttons for that.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { MARKS } from "../data/problems";
import type { Overview, Problem } from "../data/types";
import { keyOf } from "../data/types";
import { MakeDefault, Scale } from "./controls";
import { logLink, modelLink } from "./route";

const WORDS = { bad: "Broken", warn: "Warning", note: "Note" };

interface Props {
  document: Overview;
  problems: Problem[];
  well: string;
  linked?: boolean;
}

export function Headline({ document, problems, well, linked = true }: Props): JSX.Element {
  return (
    <section class="headline" aria-label="What is wrong now" aria-live="polite">
      {problems.length === 0 && (
        <p class="problem good">
          <span class="mark" aria-hidden="true">✓</span>
          <b class="what">{well}</b>
        </p>
      )}
      {problems.map((it, at) => <Line key={`${it.model} ${it.what.replace(/[\d.]+/g, "")}`} problem={it} document={document} first={at === 0} linked={linked} />)}
    </section>
  );
}

function Line({ problem, document, first, linked }: { problem: Problem; document: Overview; first: boolean; linked: boolean }): JSX.Element {
  const [open, setOpen] = useState(first);
  return (
    <details class={`problem ${problem.tone}`} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        <span class="mark" aria-hidden="true">{MARKS[problem.tone]}</span>
        <span class="visually-hidden">{WORDS[problem.tone]}: </span>
        <b class="what" title={problem.what}>{problem.what}</b>
      </summary>
      <p class="advice">{problem.advice}</p>
      <Help problem={problem} document={document} linked={linked} />
    </details>
  );
}

/** What helps: the page of the version, its warnings in the log, the version before it, more workers. */
function Help({ problem, document, linked }: { problem: Problem; document: Overview; linked: boolean }): JSX.Element | null {
  const [open, setOpen] = useState<"scale" | "default" | null>(null);
  const model = document.models.find((it) => keyOf(it) === problem.model);
  if (!model) return null;
  const before = document.models.find((it) => it.name === model.name && it.version === problem.rollBackTo);
  const close = (): void => setOpen(null);
  return (
    <div class="buttons start">
      {linked && <a class="button" href={modelLink(keyOf(model))}>Open {model.name}</a>}
      <a class="button" href={logLink(keyOf(model))}>Its warnings in the log</a>
      {before && <button type="button" onClick={() => setOpen("default")}>Roll back to {before.version}…</button>}
      {problem.moreWorkersHelp && <button type="button" onClick={() => setOpen("scale")}>Scale…</button>}
      {open === "scale" && <Scale model={model} close={close} />}
      {open === "default" && before && <MakeDefault model={before} now={model} close={close} />}
    </div>
  );
}
