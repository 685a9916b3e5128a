// What the page does beyond HTML: changes as they come, clocks that go on, the tooltip of the
// timeline, keys. Without it every page still works.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const now = () => Date.now() / 1000 + skew;
  const clock = $("clock");
  let skew = clock ? Number(clock.dataset.now) - Date.now() / 1000 : 0;

  // Lengths as the server writes them: 2.5s, 5m 45s, 1h 55m, 4d.
  const length = (seconds) => {
    let rest = Math.floor(Math.abs(seconds));
    if (rest < 10) return `${rest}s`;
    const parts = [];
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
      const number = Math.floor(rest / size);
      rest -= number * size;
      if (number || parts.length) parts.push([number, unit]);
    }
    const shown = parts.slice(0, 2).filter(([number]) => number);
    return shown.map(([number, unit], index) =>
      `${index ? String(number).padStart(2, "0") : number}${unit}`).join(" ");
  };
  const tick = () => {
    const at = now();
    if (clock) {
      const there = new Date((at + Number(clock.dataset.offset)) * 1000);
      clock.textContent = there.toISOString().slice(11, 19);
    }
    for (const each of document.querySelectorAll("[data-until]"))
      each.textContent = length(Math.max(0, each.dataset.until - at));
    for (const each of document.querySelectorAll("[data-since]"))
      each.textContent = length(at - each.dataset.since);
  };
  setInterval(tick, 1000);

  // Parts of the page that have changed.
  const live = $("live");
  const replace = (id, html) => {
    const old = $(id);
    const made = document.createElement("template");
    made.innerHTML = html;
    const fresh = made.content.firstElementChild;
    if (!fresh) return;
    const focused = old && old.contains(document.activeElement) ? document.activeElement : null;
    if (focused && focused.tagName === "INPUT") {  // not under the fingers of somebody who types
      const field = fresh.querySelector(`[name="${focused.name}"]`);
      if (field) field.value = focused.value;
    }
    if (!old) return;
    old.replaceWith(fresh);
    if (fresh.tagName === "TR") fresh.classList.add("flash");
    if (!focused) return;
    const label = focused.getAttribute("aria-label");
    const again = [...fresh.querySelectorAll(focused.tagName)].find((each) =>
      each.getAttribute("href") === focused.getAttribute("href") && each.getAttribute("aria-label") === label
      && each.name === focused.name);
    if (again) again.focus({ preventScroll: true });
  };
  if (live) {
    const say = (text) => {
      live.textContent = text;
      live.classList.toggle("gone", !text);
    };
    const source = new EventSource(live.dataset.stream);
    source.onopen = () => say("");
    source.onmessage = (event) => {
      for (const part of JSON.parse(event.data)) replace(part.id, part.html);
      tick();
    };
    source.onerror = () => say("This page is not live: the server of the page does not answer. What you see is old.");
    addEventListener("pagehide", () => source.close());
  }

  // Output of a run as it comes.
  const follow = (lines) => {
    const body = $("lines");
    if (!body) return;
    const low = innerHeight + scrollY >= document.body.scrollHeight - 80;
    const made = document.createElement("template");
    made.innerHTML = lines.html;
    body.append(made.content);
    while (body.rows.length > 5000) body.rows[0].remove();
    if (low) scrollTo(0, document.body.scrollHeight);
  };

  const lines = $("lines");
  if (lines && lines.dataset.follow) {
    const printed = new EventSource(lines.dataset.follow);
    printed.addEventListener("line", (event) => follow(JSON.parse(event.data)));
    printed.addEventListener("over", () => { printed.close(); setTimeout(() => location.reload(), 1500); });
    addEventListener("pagehide", () => printed.close());
  }

  // The tooltip of a mark: what its link says.
  let tip = null;
  const told = new Map();
  const hide = () => { if (tip) tip.remove(); tip = null; };
  const show = async (mark) => {
    const href = mark.getAttribute("href");
    if (!told.has(href)) {
      const answer = await fetch(`${href}&part=1`);
      told.set(href, answer.ok ? await answer.text() : "");
    }
    if (!told.get(href) || !(mark.matches(":hover") || mark === document.activeElement)) return;
    hide();
    tip = document.createElement("div");
    tip.id = "tip";
    tip.setAttribute("role", "tooltip");
    tip.innerHTML = told.get(href);
    document.body.append(tip);
    const box = mark.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2),
      document.documentElement.clientWidth - tip.offsetWidth - 8);
    const above = box.top > tip.offsetHeight + 16;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above ? box.top - tip.offsetHeight - 8 : box.bottom + 8) + scrollY}px`;
  };
  const markOf = (event) => event.target.closest && event.target.closest("a.mark-link");
  document.addEventListener("mouseover", (event) => { const mark = markOf(event); if (mark) show(mark); });
  document.addEventListener("mouseout", (event) => { if (markOf(event)) setTimeout(() => {
    if (tip && !tip.matches(":hover")) hide(); }, 150); });
  document.addEventListener("focusin", (event) => { const mark = markOf(event); mark ? show(mark) : hide(); });

  // Keys: Ctrl-K finds, / too unless the page has a field of its own; arrows go from mark to mark, Escape closes.
  document.addEventListener("keydown", (event) => {
    const typing = /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName);
    if ((event.key === "k" && (event.ctrlKey || event.metaKey)) || (event.key === "/" && !typing)) {
      const field = (event.key === "/" && $("filter")) || $("find");
      event.preventDefault();
      field.focus();
      field.select();
    } else if (event.key === "Escape") {
      hide();
    } else if (/^Arrow(Left|Right)$/.test(event.key) && document.activeElement.matches("a.mark-link")) {
      const row = [...document.activeElement.closest("svg").querySelectorAll("a.mark-link")];
      const next = row[row.indexOf(document.activeElement) + (event.key === "ArrowRight" ? 1 : -1)];
      if (next) { event.preventDefault(); next.focus(); }
    }
  });
})();
