// The first thing on the page: what is wrong, in words, the worst first.

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Problem } from "../data/problem";
import { modelLink } from "./route";

const SHOWN = 4;
const MARKS = { bad: "✕", warn: "▲", note: "i" };
const WORDS = { bad: "Broken", warn: "Warning", note: "Note" };

export function Headline({ problems, well, linked = true }: { problems: Problem[]; well: string; linked?: boolean }): JSX.Element {
  const [all, setAll] = useState(false);
  if (problems.length === 0) {
    return (
      <section class="headline" aria-label="What is wrong now" aria-live="polite">
        <p class="problem good">
          <span class="mark" aria-hidden="true">✓</span>
          <span><b class="what">{well}</b></span>
        </p>
      </section>
    );
  }
  const shown = all ? problems : problems.slice(0, SHOWN);
  return (
    <section class="headline" aria-label="What is wrong now" aria-live="polite">
      {shown.map((it) => (
        <p key={`${it.model} ${it.what.replace(/[\d.]+/g, "")}`} class={`problem ${it.tone} ${linked ? "linked" : ""}`}>
          <span class="mark" aria-hidden="true">{MARKS[it.tone]}</span>
          <span>
            <span class="visually-hidden">{WORDS[it.tone]}: </span>
            <b class="what">{it.model && linked ? <a href={modelLink(it.model)}>{it.what}</a> : it.what}</b>
            <span class="advice">{it.advice}</span>
          </span>
        </p>
      ))}
      {problems.length > SHOWN && (
        <button type="button" class="plain" onClick={() => setAll(!all)}>
          {all ? "Show the worst only" : `Show ${problems.length - SHOWN} more`}
        </button>
      )}
    </section>
  );
}
