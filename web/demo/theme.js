/** The theme button: as the system has it, light, dark, and round again. early_theme.js applies the choice at start. */

import { keep } from "./storage.js";

const NEXT = { system: "light", light: "dark", dark: "system" };
const SHORT = { system: "Auto", light: "Light", dark: "Dark" };

export function startThemeButton() {
  const button = document.getElementById("theme");
  const root = document.documentElement;
  const show = () => {
    const theme = root.dataset.theme in NEXT ? root.dataset.theme : "system";
    root.dataset.theme = theme;
    button.title = `Theme: ${theme}`;
    document.getElementById("theme-name").textContent = SHORT[theme];
    button.setAttribute("aria-label", `Theme: ${theme}. Change to ${NEXT[theme]}`);
  };
  button.addEventListener("click", () => {
    root.dataset.theme = NEXT[root.dataset.theme];
    keep("theme", root.dataset.theme);
    show();
  });
  show();
}
