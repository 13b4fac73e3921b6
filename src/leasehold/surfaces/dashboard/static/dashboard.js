// Pauses updates while the user reads or types; keyboard shortcuts, copying, charts. Every page works without it.
"use strict";
(() => {
  document.documentElement.classList.add("scripted");
  const main = document.getElementById("main");
  const light = document.getElementById("live");
  const word = document.getElementById("live-word");
  const keep = document.getElementById("keep-live");
  let connection = null;
  let missed = false;
  let lost = false;

  // -- live ------------------------------------------------------------------------------------------------------
  function kept() {
    try { return localStorage.getItem("leasehold-keep-live") === "1"; } catch { return false; }
  }

  function resting() {
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && main.contains(chosen.anchorNode)) return "Paused while text is selected";
    const field = document.activeElement;
    if (field && main.contains(field) && field.matches("input, textarea, select")) return "Paused while you edit";
    if (main.querySelector("details.confirm[open]")) return "Paused while you decide";
    if (!document.hasFocus() && !kept()) return "Paused in the background";
    return "";
  }

  function showStatus() {
    if (!light) return;
    const why = resting();
    light.classList.toggle("on", !why && !lost);
    light.classList.toggle("off", lost);
    word.textContent = lost ? "Disconnected, reconnecting" : why || "Live";
    if (!why && missed && connection) {
      missed = false;
      connection.reader?.cancel();  // it reconnects at once, and gets the current page
    }
  }

  if (light) {
    keep.checked = kept();
    keep.addEventListener("change", () => {
      try { localStorage.setItem("leasehold-keep-live", keep.checked ? "1" : "0"); } catch { /* the choice holds for this page only */ }
      showStatus();
    });
    main.addEventListener("htmx:sse:after:connection", (event) => { connection = event.detail.connection; lost = false; showStatus(); });
    main.addEventListener("htmx:sse:error", () => { lost = true; showStatus(); });
    main.addEventListener("htmx:sse:close", () => { lost = true; showStatus(); });
    main.addEventListener("htmx:sse:before:message", (event) => {
      if (resting()) { event.detail.cancelled = true; missed = true; }
      showStatus();
    });
    main.addEventListener("htmx:sse:after:message", () => { lost = false; mark(); draw(); showStatus(); });
    for (const name of ["selectionchange", "focusin", "focusout", "toggle", "visibilitychange"]) document.addEventListener(name, () => setTimeout(showStatus), true);
    window.addEventListener("focus", showStatus);
    window.addEventListener("blur", showStatus);
    showStatus();
  }

  // -- keys ------------------------------------------------------------------------------------------------------
  let at = null;
  const rows = () => [...main.querySelectorAll("tr[data-href]")];
  function mark() {
    for (const row of rows()) row.classList.toggle("at", row.dataset.href === at);
  }
  function move(by) {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.dataset.href === at);
    const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + by))];
    at = next.dataset.href;
    mark();
    next.scrollIntoView({ block: "nearest" });
    next.querySelector("a")?.focus({ preventScroll: true });
  }
  const pages = { o: "", j: "jobs", l: "lanes", g: "groups", w: "workers", q: "questions", m: "limits", s: "schedules", y: "system" };
  let going = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const field = document.activeElement;
    if (field && field.matches("input, textarea, select")) {
      if (event.key === "Escape") field.blur();
      return;
    }
    if (Date.now() - going < 1500 && event.key in pages) {
      going = 0;
      const home = document.querySelector(".brand").getAttribute("href");
      location.assign(home + pages[event.key]);
      return;
    }
    if (event.key === "g") going = Date.now();
    else if (event.key === "j") move(1);
    else if (event.key === "k") move(-1);
    else if (event.key === "?") document.getElementById("keys").showModal();
    else if (event.key === "Escape") for (const open of main.querySelectorAll("details.confirm[open]")) open.open = false;
    else if (event.key === "/") {
      const search = document.getElementById("search");
      if (search) search.focus(); else location.assign(document.querySelector(".brand").getAttribute("href") + "jobs#search");
      event.preventDefault();
    }
  });
  if (location.hash === "#search") document.getElementById("search")?.focus();

  // A click elsewhere closes an open form.
  document.addEventListener("click", (event) => {
    for (const open of main.querySelectorAll("details.confirm[open]")) if (!open.contains(event.target)) open.open = false;
    const copy = event.target.closest?.("button[data-copy]");
    if (copy) {
      const text = document.getElementById(copy.dataset.copy).textContent;
      navigator.clipboard?.writeText(text).then(() => { copy.textContent = "Copied"; setTimeout(() => { copy.textContent = "Copy"; }, 1500); });
    }
  });

  // -- charts ----------------------------------------------------------------------------------------------------
  const charts = new Map();
  function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim(); }
  function draw() {
    if (typeof uPlot === "undefined") return;
    for (const place of document.querySelectorAll(".chart[data-series]")) {
      const source = document.getElementById(place.dataset.series);
      if (!source) continue;
      const text = source.dataset.values;
      const known = charts.get(place.id);
      if (known && known.text === text) continue;
      const given = JSON.parse(text);
      if (known) { known.plot.setData(given.data); known.text = text; continue; }
      const axis = { stroke: colour("quiet"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 } };
      const plot = new uPlot({
        width: place.clientWidth, height: 190, cursor: { y: false }, legend: { live: true },
        scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
        axes: [{ ...axis, values: (_, at) => at.map((one) => new Date(one * 1000).toTimeString().slice(0, 5)) }, { ...axis, size: 60, values: (_, at) => at.map((one) => given.unit === "s" ? `${one} s` : one) }],
        series: [{ label: "time", value: (_, v) => v == null ? "–" : new Date(v * 1000).toTimeString().slice(0, 5) }, ...given.series.map((one) => ({ label: one.label, stroke: colour(one.colour), width: 2, points: { show: false }, fill: one.fill ? colour(one.colour) + "22" : undefined, value: (_, v) => v == null ? "–" : `${+v.toPrecision(3)} ${given.unit}` }))],
      }, given.data, place);
      charts.set(place.id, { plot, text });
      new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height: 190 })).observe(place);
    }
  }
  draw();
})();
