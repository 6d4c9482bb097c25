"use strict";
/* The charts of a node: one a metric, with its interval as a band, limits as lines, and changes as marks. */
(() => {
  const plots = document.getElementById("plots");
  if (!plots) return;
  const said = plots.dataset;
  const figures = [...plots.querySelectorAll("figure[data-metric]")];
  const drawn = new Map();
  let marks = [];
  let ends = null;

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function written(metric, value) {
    if (value === null || value === undefined) return "–";
    if (metric === "top1_agreement") return `${(value * 100).toFixed(1)} %`;
    if (metric === "perplexity_ratio") return value.toFixed(4);
    const short = Math.abs(value) >= 1e-4 || value === 0 ? String(Number(value.toPrecision(3))) : value.toExponential(1);
    return metric === "latency" ? `${short} s` : short;
  }

  function drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("--ink");
    ctx.globalAlpha = 0.7;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const mark of marks) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }

  function axis() {
    return { stroke: colour("--soft"), grid: { stroke: colour("--plot-grid"), width: 1 }, ticks: { stroke: colour("--plot-grid"), width: 1 } };
  }

  function instants(_, all, __, ___, step) {
    return all.map((one) => {
      const text = new Date(one * 1000).toISOString();
      return step >= 86400 || text.slice(11, 16) === "00:00" ? text.slice(5, 10) : text.slice(11, 16);
    });
  }

  /* All times on the page are UTC, the axis of time as well. */
  const inUtc = (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC");

  function options(metric, place) {
    const value = (_, one) => written(metric, one);
    return {
      width: Math.max(place.clientWidth, 120),
      height: 190,
      tzDate: inUtc,
      scales: { x: { time: true, range: () => ends } },
      cursor: { y: false },
      axes: [{ ...axis(), space: 60, values: instants }, { ...axis(), size: 64, values: (_, all) => all.map((one) => written(metric, one)) }],
      series: [
        { label: said.time, value: (_, one) => one === null ? "–" : `${new Date(one * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC` },
        { label: place.parentElement.querySelector("figcaption").firstChild.textContent.trim(), stroke: colour("--plot-line"), width: 1.5, value, spanGaps: true, points: { size: 4 } },
        { show: true, stroke: "transparent", points: { show: false }, spanGaps: true, value },
        { show: true, stroke: "transparent", points: { show: false }, spanGaps: true, value },
        { label: said.warn, stroke: colour("--plot-warn"), width: 1.5, dash: [6, 4], points: { show: false }, spanGaps: true, value },
        { label: said.critical, stroke: colour("--plot-critical"), width: 1.5, points: { show: false }, spanGaps: true, value },
      ],
      bands: [{ series: [3, 2], fill: colour("--plot-band") }],
      legend: { live: true, isolate: false },
      hooks: { draw: [drawMarks] },
    };
  }

  function show(figure, columns) {
    const metric = figure.dataset.metric;
    const place = figure.querySelector("[data-plot]");
    const text = figure.querySelector("[data-said]");
    const values = columns.value.filter((one) => one !== null);
    drawn.get(metric)?.destroy();
    drawn.delete(metric);
    place.replaceChildren();
    if (!values.length) {
      text.textContent = "";
      const none = document.createElement("p");
      none.className = "soft";
      none.textContent = said.none;
      place.append(none);
      return;
    }
    text.textContent = said.summary
      .replace("{latest}", written(metric, values[values.length - 1]))
      .replace("{least}", written(metric, values.reduce((a, b) => Math.min(a, b))))
      .replace("{most}", written(metric, values.reduce((a, b) => Math.max(a, b))));
    const data = [columns.at, columns.value, columns.low, columns.high, columns.warn, columns.critical];
    const plot = new uPlot(options(metric, place), data, place);
    plot.root.setAttribute("role", "img");
    plot.root.setAttribute("aria-label", figure.querySelector("figcaption").textContent.trim());
    drawn.set(metric, plot);
  }

  function tell(text) {
    for (const one of figures) one.querySelector("[data-said]").textContent = text;
  }

  let last = null;
  function draw() {
    if (last) for (const one of figures) show(one, last.charts[one.dataset.metric]);
  }

  async function load() {
    if (document.hidden) return;
    try {
      /* The page asks, and no person: that does not keep a session alive. */
      const headers = { Accept: "application/json", "HX-Request": "true" };
      const reply = await fetch(said.source, { headers, credentials: "same-origin" });
      if (!reply.ok) throw new Error(String(reply.status));
      last = await reply.json();
      marks = last.marks;
      ends = [last.from, last.to];
      draw();
    } catch {
      tell(said.failed);
    }
  }

  tell(said.wait);
  load();
  setInterval(load, 60000);
  document.addEventListener("visibilitychange", load);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  let width = window.innerWidth;
  addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    for (const [metric, plot] of drawn) {
      const place = figures.find((one) => one.dataset.metric === metric).querySelector("[data-plot]");
      plot.setSize({ width: Math.max(place.clientWidth, 120), height: 190 });
    }
  });
})();
