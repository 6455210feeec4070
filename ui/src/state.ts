// What the page knows and shows now. One object; the views are drawn again when it changes.

import { useEffect, useState } from "preact/hooks";
import { keepKey } from "./data/api";
import { History } from "./data/history";
import type { Link, Message } from "./data/stream";
import { Stream } from "./data/stream";
import type { Overview, PastSamples } from "./data/types";

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
    this.changed();
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
