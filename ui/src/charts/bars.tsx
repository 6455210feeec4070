// Bars: upright for batch sizes, lying for counts by name.

import type { JSX } from "preact";
import { count, percent } from "../data/format";
import type { BatchSize } from "../data/types";
import { ticks } from "./scale";
import { useWidth } from "./width";

const HEIGHT = 150;
const LEFT = 40;
const BOTTOM = 20;
const TOP = 10;
const MOST_BARS = 40;
const THICKEST = 44;

/** How many batches had each size. Sizes are put together where there are too many. */
export function SizeBars({ sizes, largest }: { sizes: BatchSize[]; largest: number }): JSX.Element {
  const [place, width] = useWidth<HTMLDivElement>();
  const bars = barsOf(sizes, largest);
  const all = sizes.reduce((sum, it) => sum + it.batches, 0);
  const marks = ticks(Math.max(0, ...bars.map((it) => it.batches)) / Math.max(1, all));
  const top = marks.at(-1) ?? 1;
  const step = (width - LEFT - 8) / Math.max(1, bars.length);
  const thick = Math.min(THICKEST, Math.max(1, step * 0.76));
  const every = Math.ceil(34 / step);
  const y = (share: number): number => TOP + (1 - share / top) * (HEIGHT - TOP - BOTTOM);
  const items = sizes.reduce((sum, it) => sum + it.size * it.batches, 0);
  const spoken = all ? `${count(all)} batches, ${(items / all).toFixed(1)} items each` : "no batches";
  return (
    <div ref={place} class="plot">
      <svg width={width} height={HEIGHT} role="img" aria-label={`Batch sizes: ${spoken}`}>
        {all > 0 &&
          marks.map((mark) => (
            <g key={mark}>
              <line class="grid" x1={LEFT} x2={width - 8} y1={y(mark)} y2={y(mark)} />
              <text class="tick" x={LEFT - 6} y={y(mark) + 4} text-anchor="end">
                {percent(mark)}
              </text>
            </g>
          ))}
        {bars.map((bar, at) => {
          const share = all ? bar.batches / all : 0;
          const height = HEIGHT - BOTTOM - y(share);
          return (
            <g key={bar.label}>
              <title>{`${bar.label} items: ${count(bar.batches)} batches, ${percent(share)}`}</title>
              <rect class="hit" x={LEFT + at * step} y={TOP} width={step} height={HEIGHT - TOP - BOTTOM} />
              <rect
                class="bar"
                x={LEFT + (at + 0.5) * step - thick / 2}
                y={bar.batches ? Math.min(y(share), HEIGHT - BOTTOM - 1.5) : y(0)}
                width={thick}
                height={bar.batches ? Math.max(1.5, height) : 0}
              />
              {all > 0 && (at === 0 || at === bars.length - 1 || ((at + 1) % every === 0 && bars.length - 1 - at >= every)) && (
                <text class="tick" x={LEFT + (at + 0.5) * step} y={HEIGHT - 4} text-anchor="middle">
                  {bar.label}
                </text>
              )}
            </g>
          );
        })}
        {all === 0 && (
          <text class="nothing" x={(width + LEFT) / 2} y={HEIGHT / 2} text-anchor="middle">
            no batches in this time
          </text>
        )}
      </svg>
    </div>
  );
}

interface Bar {
  label: string;
  batches: number;
}

export function barsOf(sizes: BatchSize[], largest: number): Bar[] {
  const end = Math.max(largest, ...sizes.map((it) => it.size), 1);
  const each = Math.ceil(end / MOST_BARS);
  const bars: Bar[] = [];
  for (let low = 1; low <= end; low += each) {
    const high = Math.min(end, low + each - 1);
    const within = sizes.filter((it) => it.size >= low && it.size <= high);
    bars.push({ label: each === 1 ? String(low) : `${low}–${high}`, batches: within.reduce((sum, it) => sum + it.batches, 0) });
  }
  return bars;
}

export interface NamedCount {
  name: string;
  about: string;
  count: number;
}

/** Counts by name as lying bars with their share and meaning. */
export function NamedBars({ counts, empty, tone = "s1" }: { counts: NamedCount[]; empty: string; tone?: string }): JSX.Element {
  const all = counts.reduce((sum, it) => sum + it.count, 0);
  if (all === 0) return <p class="empty">{empty}</p>;
  return (
    <ul class="named-bars">
      {[...counts]
        .sort((one, other) => other.count - one.count)
        .map((it) => (
          <li key={it.name}>
            <div class="row">
              <b>{it.name}</b>
              <span>
                {count(it.count)} <small>({percent(it.count / all)})</small>
              </span>
            </div>
            <div class="track">
              <div class={`fill ${tone}`} style={{ width: `${(100 * it.count) / all}%` }} />
            </div>
            <small class="about">{it.about}</small>
          </li>
        ))}
    </ul>
  );
}

/** A share of something limited: memory of a machine or of a GPU. */
export function Meter({ label, share, text }: { label: string; share: number | null; text: string }): JSX.Element {
  const tone = share !== null && share > 0.95 ? "bad" : share !== null && share > 0.85 ? "warn" : "";
  return (
    <div class="meter">
      <div class="row">
        <span>{label}</span>
        <b>{text}</b>
      </div>
      <div class="track" role="meter" aria-label={label} aria-valuemin={0} aria-valuemax={100} aria-valuenow={Math.round((share ?? 0) * 100)} aria-valuetext={text}>
        <div class={`fill ${tone}`} style={{ width: `${Math.min(100, (share ?? 0) * 100)}%` }} />
      </div>
    </div>
  );
}
