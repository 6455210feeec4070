// What is wrong is said by the server; here is what to say beside it, and when nothing is wrong.

import { plural, rate } from "./format";
import type { History } from "./history";
import { recent } from "./history";
import type { Overview, Problem } from "./types";
import { keyOf } from "./types";
import type { StateWords } from "./words";
import { stateWords } from "./words";

export const MARKS = { bad: "✕", warn: "▲", note: "i" };

/** A state with the worst that is wrong beside it, such as “ready, rejecting”. */
export function healthWords(state: string, problems: Problem[]): StateWords {
  const words = stateWords(state);
  const worst = problems.find((it) => it.word && it.tone !== "note");
  return worst ? { mark: MARKS[worst.tone], label: `${words.label}, ${worst.word}`, tone: worst.tone } : words;
}

/** What is wrong with one version. */
export function problemsOf({ problems }: Overview, model: { name: string; version: string }): Problem[] {
  return problems.filter((it) => it.model === keyOf(model));
}

/** Those of one version stand together, where its worst one stands. */
export function grouped(problems: Problem[]): Problem[] {
  return [...new Set(problems.map((it) => it.model))].flatMap((model) => problems.filter((it) => it.model === model));
}

/** One sentence when nothing is wrong. */
export function allWell(document: Overview, history: History): string {
  const models = document.models;
  if (models.length === 0) return "No model is registered.";
  const loading = models.filter((it) => it.state === "loading");
  if (loading.length > 0) return `${loading.map((it) => `${it.name} ${it.version}`).join(", ")} ${loading.length === 1 ? "is" : "are"} loading.`;
  let answered = 0;
  for (const model of models) {
    const now = recent(history.samples, keyOf(model), 10);
    if (now) answered += now.answered / now.seconds;
  }
  const ready = models.length === 1 ? "The model is ready" : `All ${plural(models.length, "model")} are ready`;
  return answered > 0 ? `${ready} and answering ${rate(answered)} requests a second.` : `${ready}; there is no traffic.`;
}
