// What pages gain by script: they stay current, "/" finds, j and k walk through rows. Each reads and acts without it.
"use strict";

// --- current ---------------------------------------------------------------------------------------------------------

const script = document.currentScript;
const main = document.getElementById("main");
const age = document.getElementById("age");
let stream = null;
let heard = performance.now();
let failures = 0;

if (script.dataset.live) {
  const here = new URL(location.href);
  here.searchParams.delete("did");
  history.replaceState(null, "", here);
  document.addEventListener("visibilitychange", listen);
  listen();
  setInterval(sayAge, 1000);
}

function address() {
  const path = location.pathname.slice(script.dataset.base.length) || "/";
  return `${script.dataset.base}/live?of=${encodeURIComponent(path + location.search)}`;
}

// A tab that nobody sees asks for nothing.
function listen() {
  if (stream) stream.close();
  stream = null;
  if (document.hidden) return;
  if (script.dataset.live === "poll") { poll(); return; }
  stream = new EventSource(address());
  stream.onopen = () => { heard = performance.now(); };
  stream.onmessage = (event) => { failures = 0; show(JSON.parse(event.data)); };
  // Between two streams the browser opens the next by itself; one that is refused stays closed.
  stream.onerror = () => {
    if (stream && stream.readyState === EventSource.CLOSED) { stream = null; setTimeout(listen, 2000 * ++failures); }
  };
}

async function poll() {
  if (document.hidden || script.dataset.live !== "poll") return;
  try {
    const answer = await fetch(address(), { headers: { accept: "text/html" } });
    if (answer.ok) show(await answer.text());
  } catch { /* the age of the data says it */ }
  setTimeout(poll, 4000);
}

function show(text) {
  heard = performance.now();
  const made = new DOMParser().parseFromString(text, "text/html");
  replace("pulse", made);
  const fresh = made.getElementById("main");
  if (!fresh || busy(main)) return;
  // What was done a moment ago is said by no newer page.
  const stays = (part) => part.matches("footer, [role=status]");
  const old = [...main.children].filter((part) => !stays(part));
  const parts = [...fresh.children].filter((part) => !stays(part));
  if (old.length === parts.length) {
    old.forEach((part, at) => { if (part.outerHTML !== parts[at].outerHTML && !busy(part)) part.replaceWith(parts[at]); });
  } else {
    old.forEach((part) => part.remove());
    age.parentElement.before(...parts);
  }
}

function replace(id, made) {
  const old = document.getElementById(id);
  const part = made.getElementById(id);
  if (old && part && old.outerHTML !== part.outerHTML) old.replaceWith(part);
}

// Nothing is taken from under somebody's hands: a field that is written in, text that is chosen, a list that is open.
function busy(part) {
  if (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return true;
  if (part.querySelector("details[open]")) return true;
  const chosen = getSelection();
  return Boolean(chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
}

function sayAge() {
  const seconds = Math.floor((performance.now() - heard) / 1000);
  const old = seconds > 6;
  age.textContent = old ? age.dataset.old.replace("{0}", seconds) : age.dataset.live;
  age.classList.toggle("is-old", old);
}

// A second click is no second run. Only once the form is on its way: a disabled button is not sent with it.
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (button && event.target.method === "post") setTimeout(() => { button.disabled = true; });
});

// --- keys ------------------------------------------------------------------------------------------------------------

const PAGES = { n: "/", j: "/jobs", o: "/nodes", l: "/ledger", k: "/locks", t: "/trail", f: "/failed", q: "/queue", d: "/graph" };
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
