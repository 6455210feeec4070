// Server-Sent Events read with fetch, because EventSource cannot send a key. Reconnects with
// growing pauses, stops while nobody looks, and says when nothing has come for a while.

import { ask, Refused } from "./api";

export interface Message {
  event: string;
  data: string;
}

export type Link =
  | { state: "connecting" }
  | { state: "live" }
  | { state: "paused" }
  | { state: "needsKey"; message: string }
  | { state: "lost"; message: string; retryAt: number };

const SILENCE_MS = 6000;
const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 15_000;

/** Cuts a stream of text into messages; what is not complete yet is kept. */
export class Messages {
  private rest = "";

  push(text: string): Message[] {
    const parts = (this.rest + text).replace(/\r\n/g, "\n").split("\n\n");
    this.rest = parts.pop() ?? "";
    return parts.flatMap((part) => {
      let event = "message";
      const data: string[] = [];
      for (const line of part.split("\n")) {
        if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      }
      return data.length ? [{ event, data: data.join("\n") }] : [];
    });
  }
}

export interface Options {
  path: string;
  /** A stream that may be silent for long, such as the log. */
  quiet?: boolean;
  onMessage(message: Message): void;
  onLink(link: Link): void;
}

export class Stream {
  private abort: AbortController | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private pause = FIRST_PAUSE_MS;
  private closed = false;

  constructor(private readonly options: Options) {
    document.addEventListener("visibilitychange", this.onVisibility);
    this.connect();
  }

  /** Connects now: the key was given, or a person does not want to wait. */
  connect(): void {
    clearTimeout(this.retry);
    this.abort?.abort();
    if (this.closed) return;
    if (document.hidden) {
      this.options.onLink({ state: "paused" });
      return;
    }
    const abort = new AbortController();
    this.abort = abort;
    void this.read(abort);
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.retry);
    this.abort?.abort();
    document.removeEventListener("visibilitychange", this.onVisibility);
  }

  private readonly onVisibility = (): void => {
    if (document.hidden) {
      clearTimeout(this.retry);
      this.abort?.abort();
      this.options.onLink({ state: "paused" });
    } else {
      this.pause = FIRST_PAUSE_MS;
      this.connect();
    }
  };

  private async read(abort: AbortController): Promise<void> {
    this.options.onLink({ state: "connecting" });
    let silent: ReturnType<typeof setTimeout> | undefined;
    let why = "The connection ended.";
    const heard = (): void => {
      if (this.options.quiet) return;
      clearTimeout(silent);
      silent = setTimeout(() => {
        why = "Nothing came from the server for some seconds.";
        abort.abort(why);
      }, SILENCE_MS);
    };
    try {
      heard();
      const response = await ask(this.options.path, { signal: abort.signal, headers: { Accept: "text/event-stream" } });
      if (this.options.quiet) this.live();
      const reader = (response.body as ReadableStream<Uint8Array>).getReader();
      const decoder = new TextDecoder();
      const messages = new Messages();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        heard();
        for (const message of messages.push(decoder.decode(value, { stream: true }))) {
          this.options.onMessage(message);
          this.live();
        }
      }
    } catch (error) {
      if (this.abort !== abort || this.closed || document.hidden) return;
      if (error instanceof Refused) {
        if (error.needsKey) {
          this.options.onLink({ state: "needsKey", message: error.message });
          return;
        }
        why = error.message;
      }
    } finally {
      clearTimeout(silent);
    }
    if (this.abort === abort && !this.closed && !document.hidden) this.later(why);
  }

  private live(): void {
    this.pause = FIRST_PAUSE_MS;
    this.options.onLink({ state: "live" });
  }

  private later(message: string): void {
    this.options.onLink({ state: "lost", message, retryAt: Date.now() + this.pause });
    this.retry = setTimeout(() => this.connect(), this.pause);
    this.pause = Math.min(this.pause * 2, LONGEST_PAUSE_MS);
  }
}
