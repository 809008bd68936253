// What pages gain by script: they stay current, "/" finds, j and k walk through rows. Each reads and acts without it.
"use strict";

// --- current ---------------------------------------------------------------------------------------------------------

const script = document.currentScript;
const main = document.getElementById("main");
const age = document.getElementById("age");
const MOST_LINES = 5000;
let stream = null;
let seen = script.dataset.seen;
let latest = null;  // the newest page, for as long as a part of this one waits for it
let heldSince = 0;
let heard = performance.now();
let failures = 0;

// Pages are made in the zone of their viewer, which only the browser knows: it says so once, and asks for the first again.
const zone = `cronsensus_viewer_zone=${Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC"}`;
if (!document.cookie.split("; ").includes(zone)) {
  document.cookie = `${zone}; path=${script.dataset.base || "/"}; max-age=31536000; samesite=lax`;
  const shown = script.dataset.zone !== "viewer" || zone.endsWith(`=${script.dataset.zoneName}`);
  if (!shown && script.dataset.live && document.cookie.split("; ").includes(zone)) location.reload();
}

if (script.dataset.live) {
  const here = new URL(location.href);
  here.searchParams.delete("did");
  here.searchParams.delete("zone");
  history.replaceState(null, "", here);
  document.addEventListener("visibilitychange", listen);
  document.addEventListener("focusout", () => setTimeout(update));
  document.addEventListener("selectionchange", () => { if (getSelection().isCollapsed) setTimeout(update); });
  listen();
  setInterval(showAge, 1000);
}
document.querySelectorAll(".log.grows").forEach((log) => { log.scrollTop = log.scrollHeight; });

function address() {
  const path = location.pathname.slice(script.dataset.base.length) || "/";
  return `${script.dataset.base}/live?of=${encodeURIComponent(path + location.search)}&seen=${seen}`;
}

// A tab that nobody sees asks for nothing.
function listen() {
  if (stream) stream.close();
  stream = null;
  if (document.hidden) return;
  if (script.dataset.live === "poll") { poll(); return; }
  stream = new EventSource(address());
  stream.onopen = () => { heard = performance.now(); };
  stream.onmessage = (event) => { failures = 0; seen = event.lastEventId; receive(JSON.parse(event.data)); };
  stream.addEventListener("same", (event) => { failures = 0; heard = performance.now(); countOn(main, event.data); });
  // Between two streams the browser opens the next by itself; one that is refused stays closed.
  stream.onerror = () => {
    if (stream && stream.readyState === EventSource.CLOSED) { stream = null; setTimeout(listen, 2000 * ++failures); }
  };
}

async function poll() {
  if (document.hidden || script.dataset.live !== "poll") return;
  try {
    const answer = await fetch(address(), { headers: { accept: "text/html" } });
    if (answer.ok) {
      const text = await answer.text();
      if (text === "same") { heard = performance.now(); countOn(main, answer.headers.get("x-data-of")); }
      else { seen = answer.headers.get("x-page-tag"); receive(text); }
    }
  } catch { /* the age of the data says it */ }
  setTimeout(poll, 4000);
}

function receive(text) {
  heard = performance.now();
  latest = text;
  update();
}

// Shows the newest page. What somebody is in waits, and is shown when they leave it.
function update() {
  if (latest === null) return;
  const made = new DOMParser().parseFromString(latest, "text/html");
  const fresh = made.getElementById("main");
  const pulse = made.getElementById("pulse");
  if (pulse) document.getElementById("pulse").replaceChildren(...pulse.childNodes);
  if (!fresh || updateParts(main, fresh)) {
    latest = null;
    heldSince = 0;
  } else {
    heldSince ||= heard;
  }
  showAge();
}

// Each part by its name, those of one name counted. What was done a moment ago is said by no newer page.
function partsOf(whole) {
  const parts = new Map();
  for (const part of whole.children) {
    if (part.matches("footer, [role=status]")) continue;
    const name = part.id || part.getAttribute("aria-labelledby") || part.getAttribute("aria-label") || part.className;
    let number = 1;
    while (parts.has(`${name} ${number}`)) number += 1;
    parts.set(`${name} ${number}`, part);
  }
  return parts;
}

// Returns whether all of it is as in `fresh`: a part that is in use is left as it is.
function updateParts(whole, fresh) {
  const old = partsOf(whole);
  let complete = true;
  let before = null;
  for (const [name, part] of partsOf(fresh)) {
    const mine = old.get(name);
    old.delete(name);
    let placed = mine;
    if (!mine) {
      placed = part;
      if (before) before.after(part); else whole.prepend(part);
    } else if (mine.matches(".two") && part.matches(".two")) {
      complete = updateParts(mine, part) && complete;
    } else if (!mine.isEqualNode(part)) {
      if (mine.querySelector(".log") && part.querySelector(".log")) updateLog(mine, part);
      else if (inUse(mine)) complete = false;
      else { placed = part; replacePart(mine, part); }
    }
    before = placed;
  }
  for (const part of old.values()) {
    if (inUse(part)) complete = false; else part.remove();
  }
  return complete;
}

// Nothing is taken from under somebody's hands: what has the focus, text that is chosen, a list that is open.
function inUse(part) {
  if (part.contains(document.activeElement) || part.querySelector("details[open], .choose :checked")) return true;
  const chosen = getSelection();
  return Boolean(chosen && !chosen.isCollapsed && chosen.rangeCount && chosen.getRangeAt(0).intersectsNode(part));
}

function replacePart(mine, part) {
  const scrolled = [...mine.querySelectorAll("*")].flatMap((one, at) =>
    one.scrollTop || one.scrollLeft ? [[at, one.tagName, one.scrollTop, one.scrollLeft]] : []);
  mine.replaceWith(part);
  const inside = scrolled.length ? part.querySelectorAll("*") : [];
  for (const [at, tag, top, left] of scrolled) {
    if (inside[at] && inside[at].tagName === tag) inside[at].scrollTo(left, top);
  }
}

// To a log lines are only added. It follows its end for as long as its reader is there.
function updateLog(mine, part) {
  const log = mine.querySelector(".log");
  const lines = [...part.querySelectorAll(".log > [data-line]")];
  const last = Number(log.lastElementChild?.dataset.line ?? 0);
  const added = lines.filter((line) => Number(line.dataset.line) > last);
  const follows = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
  if (added.length && added.length === lines.length && last) {
    const gap = document.createElement("span");
    gap.className = "l muted";
    gap.textContent = `… ${log.dataset.gap}`;
    log.append(gap);
  }
  log.append(...added);
  if (follows) {
    while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
    log.scrollTop = log.scrollHeight;
  }
  mine.querySelector("header")?.replaceWith(part.querySelector("header"));
}

// Times say how far they are from the moment of the data; with nothing new that is all that changes.
function countOn(whole, moment) {
  const now = Date.parse(moment);
  if (Number.isNaN(now)) return;
  for (const time of whole.querySelectorAll("time.rel")) {
    if (inUse(time)) continue;
    const far = Date.parse(time.dateTime) - now;
    const words = script.dataset;
    const text = time.matches(".lasting") ? "{0}" : time.matches(".so-far") ? words.soFar : Math.abs(far) < 1000 ? words.now : far > 0 ? words.in : words.ago;
    if (Number.isFinite(far) && Math.abs(far) < 3e12) time.textContent = text.replace("{0}", duration(Math.abs(far)));
  }
}

// As the server says it: in Chinese a space stands between a number and its unit.
const [MS, S, M, H, D] = script.dataset.units.split(" ").map((unit) => /[a-z]/.test(unit) ? unit : ` ${unit}`);

function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.floor(milliseconds)}${MS}`;
  if (milliseconds < 10000) return `${Math.round(milliseconds / 100) / 10}${S}`;
  let left = Math.round(milliseconds / 1000);
  const parts = [];
  for (const [unit, size] of [[D, 86400], [H, 3600], [M, 60], [S, 1]]) {
    if (left >= size) parts.push(`${Math.floor(left / size)}${unit}`);
    left %= size;
  }
  return parts.slice(0, 2).join(" ");
}

function showAge() {
  const silent = Math.floor((performance.now() - heard) / 1000);
  const held = heldSince ? Math.floor((performance.now() - heldSince) / 1000) : 0;
  const old = silent > 6;
  const says = old ? age.dataset.old : held ? age.dataset.held : age.dataset.live;
  age.textContent = says.replace("{0}", old ? silent : held);
  age.classList.toggle("is-old", old);
}

// A second click is no second run. Only once the form is on its way: a disabled button is not sent with it.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (button && event.target.method === "post") setTimeout(() => { button.disabled = true; });
});

// One box chooses all of a list; without script each has its own.
document.querySelectorAll("[data-all]").forEach((box) => { box.hidden = false; });
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) {
    event.target.closest("table").querySelectorAll("tbody [type=checkbox]").forEach((one) => { one.checked = event.target.checked; });
  }
  if (event.target.matches(".choose [type=checkbox]")) setTimeout(update);
});

// --- keys ------------------------------------------------------------------------------------------------------------

const PAGES = { n: "/", j: "/jobs", r: "/runs", o: "/nodes", l: "/ledger", k: "/locks", t: "/trail", f: "/failed", q: "/queue", d: "/graph" };
let going = false;
let row = -1;

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const help = document.getElementById("keys");
  if (going) {
    going = false;
    const link = PAGES[event.key] && document.querySelector(`.nav a[href="${script.dataset.base}${PAGES[event.key]}"]`);
    if (link) link.click();
    return;
  }
  if (event.key === "/") { event.preventDefault(); document.getElementById("find").focus(); }
  else if (event.key === "g") going = true;
  else if (event.key === "j" || event.key === "k") walk(event.key === "j" ? 1 : -1);
  else if (event.key === "?" && help) { if (help.open) help.close(); else help.showModal(); }
});

function walk(by) {
  const links = [...main.querySelectorAll("tbody tr")].map((line) => line.querySelector("a")).filter(Boolean);
  if (!links.length) return;
  row = Math.max(0, Math.min(links.length - 1, row + by));
  links[row].focus();
}
