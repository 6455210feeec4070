// A chart of the last minutes: lines, or areas upon each other. The legend has the numbers, so
// that nothing is told by colour alone; it shows those under the pointer while there is one.

import type { JSX } from "preact";
import { clock } from "../data/format";
import type { Mark } from "../data/history";
import type { Point } from "./scale";
import { area, line, runs, ticks, timeTicks } from "./scale";
import { useWidth } from "./width";

export interface Series {
  label: string;
  /** One of the colours of the style sheet: `s1` to `s6`. */
  colour: string;
  values: (number | null)[];
  /** Named only where there is something of it. */
  optional?: boolean;
}

export interface Hover {
  at: number | null;
  set(at: number | null): void;
  /** Where a drag began, if there is one. */
  from: number | null;
  drag(from: number | null): void;
  /** Shows only the time between two moments. */
  zoom(from: number, to: number): void;
}

interface Props {
  title: string;
  about: string;
  times: number[];
  series: Series[];
  format(value: number | null): string;
  hover: Hover;
  marks: Mark[];
  stacked?: boolean;
  limit?: { value: number; label: string } | undefined;
  /** The axis reaches at least here. */
  least?: number;
  /** What to say while there is nothing to draw. */
  empty?: string;
}

const HEIGHT = 150;
const LEFT = 52;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;

export function TimeChart(props: Props): JSX.Element {
  const [place, width] = useWidth<HTMLDivElement>();
  const { times, series, format, hover, stacked, limit } = props;
  const known = series.some((it) => it.values.some((value) => value !== null && value > 0));
  const stack = stacked ? stackUp(series) : series.map((it) => it.values);
  const highest = Math.max(props.least ?? 0, ...stack.flat().map((it) => it ?? 0));
  const showLimit = limit && highest > limit.value * 0.35;
  const marks = ticks(Math.max(highest, showLimit ? limit.value : 0) || props.least || 1);
  const top = marks.at(-1) ?? 1;
  const inner = width - LEFT - RIGHT;
  const [from, to] = [times[0] ?? 0, times.at(-1) ?? 1];
  const x = (time: number): number => LEFT + ((time - from) / Math.max(1, to - from)) * inner;
  const y = (value: number): number => TOP + (1 - value / top) * (HEIGHT - TOP - BOTTOM);
  const moments = timeTicks(from, to, Math.max(2, Math.floor(inner / 80))).filter((time) => x(time) < width - RIGHT - 24);
  const seconds = (moments[1] ?? Infinity) - (moments[0] ?? 0) < 60_000;
  const at = hover.at !== null && hover.at < times.length ? hover.at : null;
  const shown = (values: (number | null)[]): number | null =>
    at !== null ? (values[at] ?? null) : (values.findLast((it) => it !== null) ?? null);
  const spoken = series.map((it) => `${it.label} ${format(shown(it.values))}`).join(", ");
  const under = (event: PointerEvent): number | null => {
    const box = (event.currentTarget as SVGElement).getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / inner;
    return share < 0 || share > 1 ? null : Math.round(share * (times.length - 1));
  };
  const drop = (event: PointerEvent): void => {
    const ends = [hover.from, under(event)].map((it) => (it === null ? null : (times[it] ?? null)));
    const [one, other] = ends;
    hover.drag(null);
    if (typeof one === "number" && typeof other === "number" && one !== other) hover.zoom(Math.min(one, other), Math.max(one, other));
  };
  return (
    <figure class="chart">
      <figcaption>
        <h3 title={props.about}>{props.title}</h3>
        <span class="when">{at !== null ? clock(times[at] ?? 0) : ""}</span>
      </figcaption>
      <ul class="legend">
        {series.filter((it) => !it.optional || it.values.some((value) => value)).map((it) => (
          <li key={it.label}>
            <i class={`swatch ${it.colour}`} />
            {it.label} <b>{format(shown(it.values))}</b>
          </li>
        ))}
      </ul>
      <div ref={place} class="plot">
        <svg
          width={width}
          height={HEIGHT}
          role="img"
          aria-label={`${props.title}: ${spoken}`}
          onPointerMove={(event) => hover.set(under(event))}
          onPointerDown={(event) => hover.drag(under(event))}
          onPointerUp={drop}
          onPointerLeave={() => {
            hover.set(null);
            hover.drag(null);
          }}
        >
          {marks.map((mark) => (
            <g key={mark}>
              <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(mark)} y2={y(mark)} />
              {(known || mark === 0) && (
                <text class="tick" x={LEFT - 6} y={y(mark) + 4} text-anchor="end">
                  {format(mark)}
                </text>
              )}
            </g>
          ))}
          {moments.map((time) => (
            <text key={time} class="tick" x={x(time)} y={HEIGHT - 4} text-anchor={x(time) < LEFT + 24 ? "start" : "middle"}>
              {clock(time, seconds)}
            </text>
          ))}
          {(known || !stacked) && series.map((it, index) =>
            runs(stacked && index > 0 ? present(it.values) : it.values).map(([first, last]) => {
              const places = (values: (number | null)[]): Point[] =>
                values.slice(first, last + 1).map((value, offset) => [x(times[first + offset] ?? 0), y(value ?? 0)]);
              const upper = places(stack[index] ?? []);
              if (!stacked) return <path class={`line ${it.colour}`} d={line(widen(upper))} />;
              const lower = index > 0 ? places(stack[index - 1] ?? []) : upper.map(([px]): Point => [px, y(0)]);
              return (
                <>
                  <path class={`area ${it.colour}`} d={area(upper, lower)} />
                  <path class={`line thin ${it.colour}`} d={line(upper)} />
                </>
              );
            }),
          )}
          {showLimit && (
            <>
              <line class="limit" x1={LEFT} x2={width - RIGHT} y1={y(limit.value)} y2={y(limit.value)} />
              <text class="limit-label" x={LEFT + 4} y={y(limit.value) < TOP + 14 ? y(limit.value) + 13 : y(limit.value) - 5}>
                {limit.label}
              </text>
            </>
          )}
          {props.marks.filter((it) => it.time >= from && it.time <= to).map((it) => (
            <line key={`${it.time} ${it.label}`} class="mark" x1={x(it.time)} x2={x(it.time)} y1={TOP} y2={HEIGHT - BOTTOM}>
              <title>{`${clock(it.time)}: ${it.label}`}</title>
            </line>
          ))}
          {at !== null && hover.from !== null && (
            <rect class="brush" x={Math.min(x(times[at] ?? 0), x(times[hover.from] ?? 0))} y={TOP} width={Math.abs(x(times[at] ?? 0) - x(times[hover.from] ?? 0))} height={HEIGHT - TOP - BOTTOM} />
          )}
          {at !== null && <line class="cursor" x1={x(times[at] ?? 0)} x2={x(times[at] ?? 0)} y1={TOP} y2={HEIGHT - BOTTOM} />}
          {!known && (
            <text class="nothing" x={LEFT + inner / 2} y={(HEIGHT - BOTTOM) / 2 + 6} text-anchor="middle">
              {props.empty ?? "nothing yet"}
            </text>
          )}
        </svg>
      </div>
    </figure>
  );
}

/** A single point is a short line, or it would not be seen. */
function widen(points: Point[]): Point[] {
  const [only] = points;
  return points.length === 1 && only ? [[only[0] - 2, only[1]], [only[0] + 2, only[1]]] : points;
}

/** Only where there is something of it, with a neighbour on each side: a layer of nothing has no outline. */
function present(values: (number | null)[]): (number | null)[] {
  return values.map((value, at) => (value || values[at - 1] || values[at + 1] ? value : null));
}

/** Each series upon those before it. Where one is not known, it adds nothing. */
function stackUp(series: Series[]): (number | null)[][] {
  const sums: number[] = [];
  return series.map((it) =>
    it.values.map((value, at) => {
      sums[at] = (sums[at] ?? 0) + (value ?? 0);
      return sums[at] ?? 0;
    }),
  );
}
