// Applications made of parts, drawn: every version a box, every dependency an arrow.

import type { JSX } from "preact";
import { count, millis, rate } from "../data/format";
import type { Application, Place } from "../data/applications";
import { recent, recentQuantile } from "../data/history";
import { healthWords, problemsOf } from "../data/problems";
import type { Overview } from "../data/types";
import { keyOf } from "../data/types";
import { state } from "../state";
import { RATE_SECONDS } from "./models";
import { modelLink } from "./route";

const BOX = { width: 230, height: 60 };
const GAP = { x: 70, y: 18 };

export function ApplicationGraph({ application, document, shown }: { application: Application; document: Overview; shown?: string }): JSX.Element {
  const { places, calls, columns, rows } = application;
  const width = columns * (BOX.width + GAP.x) - GAP.x + 2;
  const height = rows * (BOX.height + GAP.y) - GAP.y + 2;
  const words = calls.map(({ from, to }) => `${from.model.name} calls ${to.model.name}`).join(", ");
  return (
    <div class="graph" tabIndex={0} role="group" aria-label={`The parts of ${application.root}: ${words}`}>
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} aria-hidden="true">
        <defs>
          <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
            <path d="M0 0 L8 4 L0 8 z" />
          </marker>
        </defs>
        {calls.map((call) => <path key={`${keyOf(call.from.model)} ${keyOf(call.to.model)}`} class="call" d={arrow(call.from, call.to)} marker-end="url(#arrow)" />)}
      </svg>
      {places.map((place) => <Box key={keyOf(place.model)} place={place} document={document} current={keyOf(place.model) === shown} />)}
    </div>
  );
}

function Box({ place, document, current }: { place: Place; document: Overview; current: boolean }): JSX.Element {
  const { model } = place;
  const { x, y } = corner(place);
  const words = healthWords(model.state, problemsOf(document, model));
  const now = recent(state.history.samples, keyOf(model), RATE_SECONDS);
  return (
    <a class={`part ${words.tone}`} style={{ left: `${x}px`, top: `${y}px`, width: `${BOX.width}px`, height: `${BOX.height}px` }}
      href={modelLink(keyOf(model))} aria-current={current ? "true" : undefined} title={model.stateText}>
      <b>{model.name}</b> <span class={`state ${words.tone}`}><span aria-hidden="true">{words.mark}</span> {words.label}</span>
      <small>{rate(now ? now.requests / now.seconds : null)}/s · p99 {millis(recentQuantile(state.history.samples, keyOf(model), "p99Ms"))} · {count(model.waiting)} waiting</small>
    </a>
  );
}

function corner(place: Place): { x: number; y: number } {
  return { x: place.column * (BOX.width + GAP.x) + 1, y: place.row * (BOX.height + GAP.y) + 1 };
}

function arrow(from: Place, to: Place): string {
  const [start, end] = [corner(from), corner(to)];
  const [x1, y1] = [start.x + BOX.width, start.y + BOX.height / 2];
  const [x2, y2] = [end.x - 2, end.y + BOX.height / 2];
  const bend = GAP.x / 2;
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}
