// What the page knows and shows now. One object; the views are drawn again when it changes.

import { useEffect, useState } from "preact/hooks";
import { getJson, keepKey } from "./data/api";
import { History } from "./data/history";
import type { Link, Message } from "./data/stream";
import { Stream } from "./data/stream";
import type { Overview, PastSamples } from "./data/types";

/** Ranges that the server keeps beside the last ten minutes, by the seconds that they reach back. */
const PAST: Record<number, "hour" | "day"> = { 3600: "hour", 86_400: "day" };

export interface Notice {
  id: number;
  text: string;
}

const NOTICE_MS = 8000;

export class State {
  readonly history = new History();
  /** What is shown: the newest document, unless the display is held. */
  document: Overview | null = null;
  link: Link = { state: "connecting" };
  held = false;
  /** When the newest document came, by this computer's clock. */
  heardAt = 0;
  /** Seconds of the past that charts show. */
  span = 600;
  /** The part of it that they show instead, in milliseconds. */
  zoomed: [number, number] | null = null;
  /** The samples of an hour or a day, while charts show that much. */
  private past: PastSamples | null = null;
  private pastTimer: ReturnType<typeof setTimeout> | undefined;
  notices: Notice[] = [];
  private readonly listeners = new Set<() => void>();
  private stream: Stream | null = null;
  private notice = 0;

  start(): void {
    this.stream = new Stream({
      path: "overview/stream",
      onMessage: (message) => this.take(message),
      onLink: (link) => {
        this.link = link;
        this.changed();
      },
    });
    // Ages and countdowns go on while nothing comes.
    setInterval(() => {
      if (!document.hidden && this.link.state !== "live") this.changed();
    }, 1000);
  }

  reconnect(): void {
    this.stream?.connect();
  }

  giveKey(key: string): void {
    keepKey(key.trim());
    this.reconnect();
  }

  hold(held: boolean): void {
    this.held = held;
    if (!held) this.document = this.history.documents.at(-1) ?? this.document;
    this.changed();
  }

  show(seconds: number): void {
    this.span = seconds;
    this.zoomed = null;
    this.past = null;
    void this.load();
    this.changed();
  }

  zoom(range: [number, number] | null): void {
    this.zoomed = range;
    this.changed();
  }

  /** The samples that charts show, and the milliseconds between two of them. */
  samples(): { samples: PastSamples["samples"]; everyMs: number } {
    const past = this.past ?? { samples: this.history.samples, everySeconds: 2 };
    return { samples: past.samples, everyMs: past.everySeconds * 1000 };
  }

  /** Asks for the longer past, and again when there is more of it. */
  private async load(): Promise<void> {
    clearTimeout(this.pastTimer);
    const range = PAST[this.span];
    if (!range) return;
    try {
      const past = await getJson<PastSamples>(`overview/history?range=${range}`);
      if (PAST[this.span] !== range) return;
      this.past = past;
      if (!this.held) this.changed();
    } catch (error) {
      this.tell(error instanceof Error ? error.message : String(error));
    }
    this.pastTimer = setTimeout(() => void this.load(), (this.past?.everySeconds ?? 20) * 1000);
  }

  tell(text: string): void {
    const id = ++this.notice;
    this.notices = [...this.notices.slice(-2), { id, text }];
    this.changed();
    setTimeout(() => {
      this.notices = this.notices.filter((it) => it.id !== id);
      this.changed();
    }, NOTICE_MS);
  }

  subscribe(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  private take({ event, data }: Message): void {
    if (event === "history") {
      this.history.past((JSON.parse(data) as PastSamples).samples);
    } else if (event === "overview") {
      const document = JSON.parse(data) as Overview;
      this.heardAt = Date.now();
      this.history.add(document);
      if (!this.held) this.document = document;
    } else {
      return;
    }
    if (!this.held) this.changed();
  }

  private changed(): void {
    for (const listener of this.listeners) listener();
  }
}

export const state = new State();

/** Draws the component again whenever the state changes. */
export function useChanges(): void {
  const [, set] = useState(0);
  useEffect(() => state.subscribe(() => set((n) => n + 1)), []);
}
