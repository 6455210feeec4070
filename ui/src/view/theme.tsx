// Dark or light: as the system wants it, unless a person says otherwise.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";

const KEY = "jitney-theme";
const THEMES = ["auto", "dark", "light"] as const;
type Theme = (typeof THEMES)[number];
const MARKS: Record<Theme, string> = { auto: "◐", dark: "●", light: "○" };

function kept(): Theme {
  const found = localStorage.getItem(KEY);
  return THEMES.find((it) => it === found) ?? "auto";
}

export function ThemeSwitch(): JSX.Element {
  const [theme, setTheme] = useState<Theme>(kept);
  useEffect(() => {
    document.documentElement.dataset["theme"] = theme;
    localStorage.setItem(KEY, theme);
  }, [theme]);
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
  return (
    <button type="button" aria-label={`Colours: ${theme}. Change to ${next}`} title={`Colours: ${theme}`} onClick={() => setTheme(next)}>
      <span aria-hidden="true">{MARKS[theme]}</span> <span class="text">{theme}</span>
    </button>
  );
}
