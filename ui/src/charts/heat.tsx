// A heat map: time from left to right, classes from bottom to top, and how many there were as depth of colour.

import type { JSX } from "preact";
import { clock, count } from "../data/format";
import { useWidth } from "./width";

interface Props {
  title: string;
  about: string;
  /** Of the whole map, in milliseconds. */
  range: [number, number];
  /** By time, then by class. */
  cells: number[][];
  /** What the upper end of a class is called. */
  label(at: number): string;
  empty: string;
}

const HEIGHT = 150;
const LEFT = 52;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 20;

export function HeatMap({ title, about, range, cells, label, empty }: Props): JSX.Element {
  const [place, width] = useWidth<HTMLDivElement>();
  const classes = Math.max(1, ...cells.map((it) => it.length));
  const most = Math.max(0, ...cells.flat().filter(Boolean));
  const [wide, high] = [(width - LEFT - RIGHT) / cells.length, (HEIGHT - TOP - BOTTOM) / classes];
  const totals = Array.from({ length: classes }, (_, at) => cells.reduce((sum, it) => sum + (it[at] ?? 0), 0));
  const top = totals.indexOf(Math.max(...totals));
  const every = Math.ceil(classes / 6);
  const time = (at: number): number => range[0] + ((range[1] - range[0]) * at) / cells.length;
  return (
    <figure class="chart">
      <figcaption><h3 title={about}>{title}</h3></figcaption>
      <p class="summary">{most ? <>most: <b>up to {label(top)}</b></> : empty}</p>
      <div ref={place} class="plot">
        <svg width={width} height={HEIGHT} role="img" aria-label={`${title}: ${most ? `most up to ${label(top)}` : empty}`}>
          {totals.map((_, at) => most > 0 && at % every === 0 && (
            <text key={at} class="tick" x={LEFT - 6} y={HEIGHT - BOTTOM - (at + 0.5) * high + 4} text-anchor="end">{label(at)}</text>
          ))}
          {cells.map((column, x) => column.map((n, y) => n > 0 && (
            <rect key={`${x} ${y}`} class="heat" x={LEFT + x * wide} y={HEIGHT - BOTTOM - (y + 1) * high} width={wide + 0.5} height={high + 0.5} fill-opacity={0.15 + 0.85 * Math.sqrt(n / most)}>
              <title>{`${clock(time(x))}: ${count(n)} up to ${label(y)}`}</title>
            </rect>
          )))}
          <text class="tick" x={LEFT} y={HEIGHT - 4}>{clock(range[0], false)}</text>
          <text class="tick" x={width - RIGHT} y={HEIGHT - 4} text-anchor="end">{clock(range[1], false)}</text>
        </svg>
      </div>
    </figure>
  );
}
