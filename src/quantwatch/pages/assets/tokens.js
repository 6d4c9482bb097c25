"use strict";
/* Arrow keys within a golden text. Without this script every token is a stop of the Tab key, and nothing else is lost. */
(() => {
  for (const text of document.querySelectorAll("[data-tokens]")) {
    const tokens = [...text.querySelectorAll(":scope > .tok")];
    if (!tokens.length) continue;
    const far = (one) => one.matches(".k3, .k4, .kbroken");
    let current = Math.max(tokens.findIndex(far), 0);

    function rest(index) {
      tokens[current].tabIndex = -1;
      current = index;
      tokens[current].tabIndex = 0;
    }
    function next(step, wanted) {
      for (let i = current + step; i >= 0 && i < tokens.length; i += step) if (wanted(tokens[i])) return i;
      return current;
    }
    for (const one of tokens) one.tabIndex = -1;
    tokens[current].tabIndex = 0;

    const always = () => true;
    const moves = {
      ArrowRight: () => next(1, always), ArrowLeft: () => next(-1, always),
      ArrowDown: () => next(1, far), ArrowUp: () => next(-1, far),
      Home: () => 0, End: () => tokens.length - 1,
    };
    text.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { text.classList.add("shut"); return; }
      const move = moves[event.key];
      if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      text.classList.remove("shut");
      rest(move());
      tokens[current].focus();
    });
    text.addEventListener("focusin", (event) => {
      const index = tokens.indexOf(event.target);
      if (index >= 0 && index !== current) rest(index);
    });
    for (const kind of ["pointerover", "focusout"]) text.addEventListener(kind, () => text.classList.remove("shut"));
  }
})();
