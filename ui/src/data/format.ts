// Numbers as people read them: at most three digits that matter, with their unit.

const NONE = "–";

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value < 10_000) return String(Math.round(value));
  return short(value);
}

/** A rate: below ten with a decimal, so that one request in five seconds is not nothing. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0";
  if (value < 0.1) return "<0.1";
  if (value < 9.95) return trim(value.toFixed(1));
  if (value < 9_999.5) return String(Math.round(value));
  return short(value);
}

function short(value: number): string {
  const units: [number, string][] = [
    [1e12, " T"],
    [1e9, " G"],
    [1e6, " M"],
    [1e3, " k"],
  ];
  for (const [size, unit] of units) {
    if (value >= size) return digits(value / size) + unit;
  }
  return digits(value);
}

export function millis(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  if (value === 0) return "0 ms";
  if (value < 0.01) return "<0.01 ms";
  if (value < 999.5) return `${digits(value)} ms`;
  return duration(value / 1000);
}

/** Seconds as the two largest units that matter. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 9.95) return `${trim(seconds.toFixed(1))} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  const sign = value < 0 ? "−" : "";
  if (size < 1e3) return `${sign}${Math.round(size)} B`;
  if (size < 999_500) return `${sign}${digits(size / 1e3)} kB`;
  if (size < 999_500_000) return `${sign}${digits(size / 1e6)} MB`;
  if (size < 999_500_000_000) return `${sign}${digits(size / 1e9)} GB`;
  return `${sign}${digits(size / 1e12)} TB`;
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return NONE;
  const value = share * 100;
  if (value === 0) return "0 %";
  if (value < 0.1) return "<0.1 %";
  if (value > 99 && value < 100) return `${trim((Math.floor(value * 10) / 10).toFixed(1))} %`;
  return value < 9.95 ? `${trim(value.toFixed(1))} %` : `${Math.round(value)} %`;
}

export function times(n: number): string {
  if (n === 1) return "once";
  return n === 2 ? "twice" : `${count(n)} times`;
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

export function clock(time: number, seconds = true): string {
  const at = new Date(time);
  const two = (n: number) => String(n).padStart(2, "0");
  const minute = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return seconds ? `${minute}:${two(at.getSeconds())}` : minute;
}

/** How long ago something was, in words; nothing if it is not known. */
export function ago(time: string | null | undefined, now: number): string {
  const at = time ? Date.parse(time) : NaN;
  if (!Number.isFinite(at)) return "";
  const seconds = Math.max(0, (now - at) / 1000);
  return seconds < 2 ? "just now" : `${duration(seconds)} ago`;
}

function digits(value: number): string {
  if (value < 0.995) return trim(value.toFixed(2));
  if (value < 99.5) return trim(value.toFixed(value < 9.95 ? 1 : 0));
  return String(Math.round(value));
}

function trim(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}
