// Optional behaviour of pages. Every page works without it; nothing here is specific to one page.

const said = document.getElementById("said");

function say(text) {
  said.textContent = "";
  requestAnimationFrame(() => { said.textContent = text; });
}

// [data-theme]: switches between light and dark; stored in this browser.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

function scheme() {
  return root.dataset.scheme ?? (dark.matches ? "dark" : "light");
}

function showScheme(button) {
  button.textContent = scheme() === "dark" ? "Light" : "Dark";
  button.hidden = false;
}

const kept = localStorage.getItem("scheme");
if (kept === "dark" || kept === "light") root.dataset.scheme = kept;
for (const button of document.querySelectorAll("[data-theme]")) {
  showScheme(button);
  button.addEventListener("click", () => {
    root.dataset.scheme = scheme() === "dark" ? "light" : "dark";
    localStorage.setItem("scheme", root.dataset.scheme);
    showScheme(button);
  });
}

// [data-live="seconds"] with an id: reloads the page and replaces this part until it has no such attribute. Parts with a
// focused field, a selection or a pressed button wait.
function isBusy(part) {
  const selection = getSelection();
  return (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select"))
    || part.matches(":active")
    || (!selection.isCollapsed && part.contains(selection.anchorNode));
}

// Why parts are not updated: the message, whether the user must log in again, and the delay that the service requests.
class NotLive extends Error {
  constructor(text, { isSignedOut = false, after = 0 } = {}) {
    super(text);
    this.isSignedOut = isSignedOut;
    this.after = after;
  }
}

async function freshPage(ids) {
  let answer;
  try {
    answer = await fetch(location.href, {
      headers: { "X-Lamella-Live": ids.join(",") }, signal: AbortSignal.timeout(LONGEST_ASKED_S * 1000),
    });
  } catch {
    throw new NotLive("the service cannot be reached");
  }
  const isLogin = answer.redirected && new URL(answer.url).pathname === banner.dataset.login;
  if (isLogin || answer.status === 401) throw new NotLive("you are signed out", { isSignedOut: true });
  if (answer.status === 429 || answer.status === 408 || answer.status >= 500) {
    const after = Number(answer.headers.get("Retry-After")) || 0;
    throw new NotLive(`the service answers with an error (${answer.status})`, { after });
  }
  if (!answer.ok) location.reload();  // the update failed: show the error page
  try {
    return answer.ok ? new DOMParser().parseFromString(await answer.text(), "text/html") : null;
  } catch {
    throw new NotLive("the service cannot be reached");
  }
}

async function renew(ids) {
  const fresh = await freshPage(ids);
  if (!fresh) return;
  for (const id of ids) {
    const old = document.getElementById(id);
    const part = fresh.getElementById(id);
    if (!part) old?.removeAttribute("data-live");
    if (!old || !part || isBusy(old) || old.isEqualNode(part)) continue;
    const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
    const open = [...old.querySelectorAll("details[open][id]")].map((each) => each.id);
    const scrolled = [...old.querySelectorAll("[id]")].filter((each) => each.scrollTop || each.scrollLeft)
      .map((each) => [each.id, each.scrollLeft, each.scrollTop]);
    const adopted = document.adoptNode(part);
    old.replaceWith(adopted);
    for (const [name, left, top] of scrolled) document.getElementById(name)?.scrollTo(left, top);
    for (const each of open) document.getElementById(each)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    prepare(adopted);
    if (adopted.dataset.say && adopted.dataset.say !== old.dataset.say) say(adopted.dataset.say);
  }
}

// #live says that parts are not updated, why, since when, and what to do; hidden while they are.
const LONGEST_ASKED_S = 30;
const LONGEST_WAIT_S = 60;
const banner = document.getElementById("live");
let failures = 0;
let renewed = new Date();
let turn = 0;

function showNotLive(error, wait) {
  const text = `Not live: ${error.message}. Last update ${renewed.toLocaleTimeString()}. Retrying every ${wait} s. `;
  if (!banner.hidden && banner.dataset.text === text) return;
  const more = document.createElement(error.isSignedOut ? "a" : "button");
  if (error.isSignedOut) {
    more.href = `${banner.dataset.login}?next=${encodeURIComponent(location.pathname + location.search)}`;
    more.textContent = "Log in again";
  } else {
    more.type = "button";
    more.className = "quiet small";
    more.textContent = "Try now";
    more.addEventListener("click", () => { failures = 0; live(0); });
  }
  banner.dataset.text = text;
  const hadFocus = banner.contains(document.activeElement);
  banner.hidden = false;
  banner.replaceChildren(text, more);
  if (hadFocus) more.focus({ preventScroll: true });
}

async function turnOf(parts, wait) {
  try {
    await renew(parts.map((part) => part.id));
    renewed = new Date();
    if (failures) say("Live again");
    failures = 0;
    banner.hidden = true;
    return null;
  } catch (error) {
    if (!(error instanceof NotLive)) throw error;
    failures += 1;
    const pause = Math.min(Math.max(wait * 2 ** Math.min(failures, 10), error.after), LONGEST_WAIT_S);
    showNotLive(error, pause);
    return pause;
  }
}

function live(after = null) {
  clearTimeout(turn);
  const parts = [...document.querySelectorAll("[data-live][id]")];
  if (!parts.length) {
    banner.hidden = true;
    return;
  }
  const wait = Math.min(...parts.map((part) => Number(part.dataset.live) || 2));
  turn = setTimeout(async () => {
    let pause = null;
    try {
      if (!document.hidden) pause = await turnOf(parts, wait);
    } finally {
      live(pause);
    }
  }, (after ?? wait) * 1000);
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) live(0); });

// [data-told="id"], a map: one tab stop; arrow keys move between tiles; describes the tile under the pointer or with the
// focus in the element of that id.
const TILES = "button, a";

function moveIn(map, event) {
  const tiles = [...map.querySelectorAll(TILES)];
  const now = tiles.indexOf(document.activeElement);
  if (now < 0) return;
  const top = tiles[0].offsetTop;
  const found = tiles.findIndex((tile) => tile.offsetTop !== top);
  const across = found < 0 ? tiles.length : found;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across, Home: -now, End: tiles.length - 1 - now };
  if (!(event.key in steps)) return;
  const next = tiles[now + steps[event.key]];
  event.preventDefault();
  if (!next) return;
  tiles[now].setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

function prepareMap(map) {
  const tiles = map.querySelectorAll(TILES);
  tiles.forEach((tile, number) => { tile.setAttribute("tabindex", number ? "-1" : "0"); });
  map.addEventListener("keydown", (event) => moveIn(map, event));
  const told = document.getElementById(map.dataset.told ?? "");
  if (!told) return;
  for (const kind of ["focusin", "pointerover"]) {
    map.addEventListener(kind, (event) => {
      const tile = event.target;
      const text = tile.querySelector(":scope > title")?.textContent || tile.title || tile.getAttribute("aria-label");
      if (tile.matches("button, a, rect") && text) told.textContent = text;
    });
  }
}

// [data-copy="id"]: copy the text of an element.
async function copy(button) {
  const text = document.getElementById(button.dataset.copy).textContent;
  try {
    await navigator.clipboard.writeText(text);
    say("Copied");
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } catch {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    say("Selected; press the keys for copying");
  }
}

// [data-insert="text"] within a form: inserts text at the caret of the field named by data-into.
function insert(button) {
  const field = document.getElementById(button.dataset.into);
  const text = button.dataset.insert;
  const [from, to] = [field.selectionStart, field.selectionEnd];
  field.setRangeText(text, from, to, "end");
  field.focus();
}

// [data-key="/"]: the key leads to this field, unless another field has the focus.
const keyed = [...document.querySelectorAll("[data-key]")];

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
  const field = keyed.find((each) => each.dataset.key === event.key);
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
});

// input[list][data-many]: names with commas between them; the list completes the last one.
function prepareMany(field) {
  if (!field.list) return;
  const names = [...field.list.options].map((each) => each.value);
  const own = document.createElement("datalist");
  own.id = `${field.list.id}-of-${field.name}`;
  field.after(own);
  field.setAttribute("list", own.id);
  const show = () => {
    const at = field.value.lastIndexOf(",");
    const before = at < 0 ? "" : `${field.value.slice(0, at).trimEnd()}, `;
    const taken = new Set(before.split(",").map((each) => each.trim()));
    own.replaceChildren(...names.filter((name) => !taken.has(name)).map((name) => {
      const option = document.createElement("option");
      option.value = before + name;
      return option;
    }));
  };
  field.addEventListener("input", show);
  show();
}

function prepare(part) {
  for (const map of part.querySelectorAll("[data-told]")) prepareMap(map);
  for (const field of part.querySelectorAll("input[list][data-many]")) prepareMany(field);
  for (const button of part.querySelectorAll("[data-copy]")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
  for (const button of part.querySelectorAll("[data-insert]")) {
    button.hidden = false;
    button.addEventListener("click", () => insert(button));
  }
  for (const field of part.querySelectorAll("[data-error-at]")) {
    const at = Number(field.dataset.errorAt);
    field.focus();
    field.setSelectionRange(at, Math.min(at + 1, field.value.length));
  }
  for (const form of part.querySelectorAll("form[data-auto]")) {
    form.addEventListener("change", () => form.requestSubmit());
  }
  for (const field of part.querySelectorAll("textarea[data-submit]")) {
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) field.form.requestSubmit();
    });
  }
}

prepare(document);
live();
