// Runs before the first paint, so that a dark page never flashes white: sets data-theme on <html> to "light" or "dark".
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let choice = null;
    try {
      choice = localStorage.getItem("stepscope.theme");
    } catch {
      // Storage may be forbidden; the system's wish holds then.
    }
    const dark = choice === "dark" || (choice !== "light" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    document.documentElement.dataset.themeChoice = choice ?? "system";
    document.dispatchEvent(new CustomEvent("stepscope:theme"));
  };
  system.addEventListener("change", apply);
  document.addEventListener("stepscope:theme-choice", apply);
  apply();
})();
