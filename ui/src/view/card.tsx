// A part of a page under a heading.

import type { ComponentChildren, JSX } from "preact";

export function Card({ title, children, extra }: { title: string; children: ComponentChildren; extra?: ComponentChildren }): JSX.Element {
  return (
    <section class="card" aria-label={title}>
      <div class="row head"><h2>{title}</h2>{extra}</div>
      {children}
    </section>
  );
}
