// A question before something is changed: what will happen, and what the server said to it.

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props {
  title: string;
  /** What the button does, as a verb. */
  action: string;
  danger?: boolean;
  disabled?: boolean;
  children: ComponentChildren;
  /** Does it; an error stays in the dialog, in words. */
  run(): Promise<void>;
  close(): void;
}

export function Dialog({ title, action, danger, disabled, children, run, close }: Props): JSX.Element {
  const place = useRef<HTMLDialogElement>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  useEffect(() => {
    const [before, dialog] = [document.activeElement, place.current];
    dialog?.showModal();
    return () => {
      dialog?.close(); // While it is open, nothing else can have the focus.
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await run();
      close();
    } catch (problem) {
      setError(problem instanceof Error ? problem.message : String(problem));
      setBusy(false);
    }
  };
  return (
    // The browser tells late that it has closed: a dialog that is gone must not close the next one.
    <dialog ref={place} aria-labelledby="dialog-title" onCancel={close} onClose={() => place.current && close()}>
      <form onSubmit={(event) => void submit(event)}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        {error && (
          <p class="callout bad" role="alert">
            <b>It was not done.</b> {error}
          </p>
        )}
        <div class="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class={danger ? "danger" : "primary"} disabled={busy || disabled}>
            {busy ? "Working…" : action}
          </button>
        </div>
      </form>
    </dialog>
  );
}
