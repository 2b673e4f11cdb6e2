// The page of a node: asks /status every two seconds and writes what it says. All text is set as text, never as HTML.
"use strict";

const EVERY = 2000, PATIENCE = 8000, MOST_LABELS = 12, MOST_MEMBERS = 64;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);

let status = null;      // what the node said last
let ahead = 0;          // seconds that its clock is ahead of ours
let heardAt = 0;        // when it said so, by our clock

// The token comes with the link, after the #, which browsers do not send; it stays in this tab.
if (location.hash.startsWith("#token=")) {
  sessionStorage.setItem("token", location.hash.slice(7));
  history.replaceState(null, "", location.pathname);
}

function put(id, text) {
  const place = $(id);
  if (place.textContent !== text) place.textContent = text;
}

function made(name, text = "", kind = "") {
  const one = document.createElement(name);
  one.textContent = text;
  if (kind) one.className = kind;
  return one;
}

function drawn(name, facts) {
  const one = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(facts)) one.setAttribute(key, value);
  return one;
}

// Words for numbers and times.

const whole = (value) => (value ?? 0).toLocaleString("en");

function digits(value) {
  if (value === null || value === undefined) return "∞";
  if (value === 0) return "0";
  const size = 10 ** (Math.floor(Math.log10(value)) - 3);
  const up = Math.ceil(value * (1 - 1e-9) / size) * size;
  return up < 0.001 ? up.toExponential(2).replace(/\.?0+e/, "e") : String(parseFloat(up.toPrecision(4)));
}

function span(seconds) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  for (const [unit, size] of units) {
    if (seconds >= size) {
      const many = Math.floor(seconds / size);
      return `${many} ${unit}${many === 1 ? "" : "s"}`;
    }
  }
  const many = Math.max(0, Math.round(seconds));
  return `${many} second${many === 1 ? "" : "s"}`;
}

const now = () => Date.now() / 1000 + ahead;
const ago = (at) => (at === null || at === undefined ? "never" : now() - at < 1.5 ? "just now" : `${span(now() - at)} ago`);

function bytes(many) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let place = 0;
  while (many >= 1000 && place < units.length - 1) { many /= 1000; place += 1; }
  return `${many < 10 && place ? many.toFixed(1) : Math.round(many)} ${units[place]}`;
}

// What is shown.

const STATES = {
  starting: ["warning", "starting"], running: ["", "running"], waiting: ["", "waiting for samples"],
  finished: ["", "finished"], exhausted: ["warning", "budget used up"],
  stopped: ["error", "stopped"],
};

function show() {
  const s = status;
  document.title = `${s.name} · ${s.state} · Gossamer`;
  put("name", s.name);
  put("what", [`learner ${s.learner}`, s.algorithm, s.network && `network ${s.network.slice(0, 8)}`].filter(Boolean).join(" · "));
  const worst = s.alarms.some((one) => one.level === "error") ? "error" : s.alarms.length ? "warning" : "";
  const [kind, word] = STATES[s.state];
  $("state").className = `pill ${kind || worst}`;
  put("state", word);
  showAlarms(s.alarms);
  put("basis", s.guarantee.basis);
  $("basis").className = s.guarantee.basis === "proven" ? "badge" : "badge doubt";
  put("sentence", s.guarantee.sentence);
  put("meaning", s.guarantee.meaning);
  showSpend(s.spend, s.progress);
  showPace(s);
  showNeighbours(s.neighbours);
  const { missing = 0, resent = 0, messages_received: came = 0 } = s.counts;
  put("messages", `${whole(came)} messages came, ${whole(missing)} did not come in time, ${whole(resent)} were sent again.`);
  showGraph(s);
  put("seen", s.guarded ? "only you see this" : "only this machine sees this");
  showRows(s.rows);
  put("since", span(now() - (s.since ?? now())));
  put("certificate", s.certificate_end ? `good for ${span(s.certificate_end - now())}` : "–");
  put("ledger", `${whole(s.counts.ledger_rows)} rows`);
  put("traffic", `${bytes(s.counts.bytes_sent)} sent, ${bytes(s.counts.bytes_received)} received`);
  put("version", s.version);
}

function showAlarms(alarms) {
  const text = JSON.stringify(alarms);
  if ($("alarms").dataset.shown === text) return;
  $("alarms").dataset.shown = text;
  $("alarms").replaceChildren(...alarms.map((one) => {
    const item = made("li", "", one.level);
    item.append(made("strong", one.told), ` ${one.todo}`);
    return item;
  }));
}

function showSpend(spend, progress) {
  $("meter").hidden = $("line-label").hidden = spend === null;
  if (spend === null) {
    put("spent", "∞");
    put("budget", "epsilon: nothing is protected");
    put("spend-words", "This algorithm adds no noise. Whoever hears the node can learn its rows.");
    return;
  }
  const { epsilon, budget } = spend;
  const scale = 1.08 * budget.epsilon;
  const over = epsilon === null || epsilon > budget.epsilon * (1 + 1e-9);
  put("spent", `ε ${digits(epsilon)}`);
  put("budget", `of ${digits(budget.epsilon)}`);
  $("fill").style.width = `${Math.min(100, 100 * (epsilon ?? scale) / scale)}%`;
  $("fill").className = over ? "fill over" : "fill";
  $("line").style.left = `${100 * budget.epsilon / scale}%`;
  put("line-label", `budget ε ${digits(budget.epsilon)}`);
  const meter = $("meter");
  meter.setAttribute("aria-valuemax", budget.epsilon);
  meter.setAttribute("aria-valuenow", epsilon === null ? budget.epsilon : Math.min(epsilon, budget.epsilon));
  meter.setAttribute("aria-valuetext", `epsilon ${digits(epsilon)} of ${digits(budget.epsilon)}`);
  const delta = budget.delta ? ` Delta is ${digits(spend.delta)} of ${digits(budget.delta)}.` : "";
  put("spend-words", spendWords(spend, progress) + delta);
}

function spendWords(spend, progress) {
  const done = progress.exchange === null || progress.exchange === undefined ? 0 : progress.exchange + 1;
  const covered = progress.allowed === null ? "Exchanges need not end."
    : `The budget covers ${whole(progress.allowed)} exchanges; ${whole(Math.max(0, progress.allowed - done))} are left.`;
  if (!done) return `Nothing was spent so far. ${covered}`;
  return spend.grows ? `It grows with every exchange. ${covered}`
    : `It does not grow: the whole run was counted with the first exchange. ${covered}`;
}

function showPace(s) {
  const { per_minute: rate, at, exchange, period, allowed } = s.progress;
  put("rate", rate === null ? "–" : rate < 10 ? rate.toFixed(1) : whole(Math.round(rate)));
  put("last", ago(at));
  put("exchange", exchange === null || exchange === undefined ? "none so far" : allowed ? `${whole(exchange + 1)} of ${whole(allowed)}` : whole(exchange + 1));
  put("period", period ? `one in ${period} s at most` : "as fast as it goes");
  put("model", !s.model.shown ? "never shown" : s.model.exchange === null ? "none so far" : `of exchange ${whole(s.model.exchange)}`);
}

const away = (one) => !one.connected || one.heard === null;

function showNeighbours(neighbours) {
  const rows = neighbours.map((one) => {
    const row = made("tr"), name = made("th", one.name);
    name.scope = "row";
    row.append(name, made("td", one.connected ? "● connected" : "✕ away", one.connected ? "good" : "bad"), made("td", ago(one.heard)));
    return row;
  });
  $("neighbours").replaceChildren(...rows);
}

function showRows({ read, rejected, reasons }) {
  put("read", whole(read));
  put("rejected", `rows read, ${whole(rejected)} rejected`);
  $("reasons").replaceChildren(...Object.entries(reasons).map(([reason, many]) => {
    const item = made("li");
    item.append(made("b", whole(many)), made("span", reason));
    return item;
  }));
}

// The graph: members on a circle, this node at the top.

function showGraph(s) {
  const text = JSON.stringify([s.links, s.members, s.neighbours.map(away)]);
  if ($("graph").dataset.shown === text) return;
  $("graph").dataset.shown = text;
  const around = new Map(s.neighbours.map((one) => [one.learner, one]));
  const few = s.members.length <= MOST_MEMBERS;
  const shown = few && s.members.length ? s.members.map((_, number) => number) : [s.learner, ...around.keys()];
  const turn = Math.max(0, shown.indexOf(s.learner));
  const places = new Map(shown.map((learner, place) => {
    const angle = 2 * Math.PI * (place - turn) / shown.length - Math.PI / 2;
    return [learner, [210 + 100 * Math.cos(angle), 130 + 94 * Math.sin(angle), angle]];
  }));
  const kind = (learner) => learner === s.learner ? "own" : !around.has(learner) ? "" : away(around.get(learner)) ? "lost" : "heard";
  const mine = (pair) => Number(pair.includes(s.learner));  // drawn last, above the others
  const links = s.links.filter((pair) => pair.every((one) => places.has(one))).sort((a, b) => mine(a) - mine(b)).map(([one, other]) => {
    const [[x1, y1], [x2, y2]] = [places.get(one), places.get(other)];
    const own = one === s.learner ? other : other === s.learner ? one : null;
    return drawn("line", { x1, y1, x2, y2, class: `link ${own === null ? "" : kind(own) === "lost" ? "lost" : "own"}` });
  });
  const radius = shown.length <= MOST_LABELS ? 11 : 5;
  const dots = shown.map((learner) => {
    const [cx, cy] = places.get(learner);
    const dot = drawn("circle", { cx, cy, r: radius, class: `member ${kind(learner)}` }), title = drawn("title", {});
    title.textContent = s.members[learner] ?? `learner ${learner}`;
    dot.append(title);
    return dot;
  });
  const labels = (shown.length > MOST_LABELS ? [s.learner] : shown).map((learner) => {
    const [x, y, angle] = places.get(learner);
    const side = Math.abs(Math.cos(angle)) < 0.3 ? "middle" : Math.cos(angle) > 0 ? "start" : "end";
    const place = { x: x + (side === "middle" ? 0 : 18 * Math.sign(Math.cos(angle))), y: y + (side === "middle" ? 5 + 25 * Math.sin(angle) : 5) };
    const label = drawn("text", { ...place, "text-anchor": side, class: `label ${kind(learner)}` });
    const name = s.members[learner] ?? `learner ${learner}`;
    label.textContent = name.length > 12 ? `${name.slice(0, 11)}…` : name;
    return label;
  });
  $("graph").replaceChildren(...links, ...dots, ...labels);
  const names = s.neighbours.map((one) => one.name);
  const lost = s.neighbours.filter(away).map((one) => one.name);
  const spoken = names.length > 8 ? `${names.length} others` : names.join(", ") || "nobody";
  put("graph-words", `${whole(s.members.length || shown.length)} members. ${s.name} exchanges with ${spoken}.`
    + (lost.length ? ` Away: ${lost.slice(0, 8).join(", ")}.` : ""));
}

// Asking, again and again.

async function ask() {
  const token = sessionStorage.getItem("token");
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const answer = await fetch("status", { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (answer.status === 401) {
    put("wrong", token ? "This token is not the one of this node." : "");
    sessionStorage.removeItem("token");
    return null;
  }
  if (!answer.ok) throw new Error(`status ${answer.status}`);
  return answer.json();
}

async function look() {
  try {
    const told = await ask();
    $("door").hidden = told !== null;
    $("facts").hidden = told === null;
    $("gone").hidden = true;
    if (told === null) return put("state", "locked");
    status = told;
    heardAt = Date.now() / 1000;
    ahead = told.now - heardAt;
    show();
    put("fresh", "This page asks the node every two seconds. Nothing on it comes from anywhere else.");
  } catch {
    $("gone").hidden = false;
    $("state").className = "pill error";
    put("state", "no answer");
    put("gone", `The node does not answer${heardAt ? `; what is shown is ${span(Date.now() / 1000 - heardAt)} old` : ""}. Does it run?`);
  }
  return undefined;
}

async function watch() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((done) => setTimeout(done, EVERY));
  }
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("token").value.trim());
  $("token").value = "";
  look();
});

watch();
