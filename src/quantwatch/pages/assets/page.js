"use strict";
/* What every page does by itself: clocks that go on, parts that are asked for again, and a word when nobody answers. */
(() => {
  const words = JSON.parse(document.body.dataset.words);
  const units = words.language === "zh"
    ? [[86400, "天"], [3600, "小时"], [60, "分钟"], [1, "秒"]]
    : [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

  function span(seconds) {
    const size = Math.abs(seconds);
    const [unit, word] = units.find(([unit]) => size >= unit) || units[units.length - 1];
    return `${Math.floor(size / unit)} ${word}`;
  }

  function tick() {
    for (const one of document.querySelectorAll(".ago[data-at]")) {
      const elapsed = (Date.now() - Date.parse(one.dataset.at)) / 1000;
      const said = words[elapsed >= 0 ? "frame.ago" : "frame.ahead"].replace("{span}", span(elapsed));
      one.textContent = `(${said})`;
    }
  }
  setInterval(tick, 10000);

  document.addEventListener("htmx:configRequest", (event) => {
    const seen = event.detail.elt.dataset.seen;
    if (seen) event.detail.headers["X-Seen"] = seen;
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    /* A hidden tab asks for nothing. No part holds a field, so nobody who types is in its way. */
    if (event.detail.elt.dataset.again !== undefined && document.hidden) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.detail.target;
    if (part.dataset.again === undefined) return;
    part.dataset.seen = event.detail.xhr.getResponseHeader("X-Version") || "";
    part.openBefore = [...part.querySelectorAll("details[open][id]")].map((one) => one.id);
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    for (const id of event.detail.target.openBefore || []) document.getElementById(id)?.setAttribute("open", "");
  });

  /* Who listens to the page hears a new verdict, and nothing else of what is sent anew. */
  let verdict = document.getElementById("verdict")?.textContent.trim();
  document.addEventListener("htmx:afterSwap", () => {
    const now = document.getElementById("verdict")?.textContent.trim();
    const spoken = document.getElementById("spoken");
    if (spoken && now && now !== verdict) spoken.textContent = now;
    verdict = now;
  });

  const cut = document.getElementById("cut");
  function unanswered() {
    cut.textContent = words["frame.cut"];
    cut.hidden = false;
  }
  for (const fault of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) document.addEventListener(fault, unanswered);
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) cut.hidden = true;
  });
})();
