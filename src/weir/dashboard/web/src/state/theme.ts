// Light or dark: the system's choice until the reader makes one.

import { effect, signal } from "@preact/signals";

const KEY = "weir.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export type Theme = "light" | "dark";

const chosen = localStorage.getItem(KEY);
export const theme = signal<Theme>(
  chosen === "light" || chosen === "dark" ? chosen : system.matches ? "dark" : "light",
);

system.addEventListener("change", () => {
  if (!localStorage.getItem(KEY)) theme.value = system.matches ? "dark" : "light";
});

effect(() => {
  document.documentElement.dataset["theme"] = theme.value;
});

export function toggleTheme(): void {
  const next: Theme = theme.value === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, next);
  theme.value = next;
}
