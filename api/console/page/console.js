// The frame of the page: views by the address's hash, the time bar, the worker.

import { byId, clear, el, headOf, number } from './dom.js';
import { absolute, absoluteTimes } from './parts.js';
import { Reader } from './reader.js';
import { searchBox } from './search.js';
import * as overview from './overview.js';
import * as cluster from './cluster.js';
import * as logView from './log.js';
import * as cns from './cns.js';
import * as vnets from './vnets.js';
import * as objects from './objects.js';

const views = { overview, cluster, log: logView, cns, vnets, objects, object: objects };
const reader = new Reader();
const main = byId('main');
const slider = byId('at');
let current = null; // {name, leave}
let at = 0;         // seq that is looked at; 0: the head
let settle = 0;     // timer of the slider

// route reads "#/log?kind=nic" as {view, parts, query}.
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map(decodeURIComponent);
  return { view: parts[0] || 'overview', parts: parts.slice(1), query: new URLSearchParams(query || '') };
}

function show() {
  const r = route();
  const view = views[r.view];
  if (current) current.leave();
  clear(main);
  for (const a of document.querySelectorAll('nav a')) {
    const here = a.dataset.view === r.view || (r.view === 'object' && a.dataset.view === 'objects');
    if (here) a.setAttribute('aria-current', 'page'); else a.removeAttribute('aria-current');
  }
  if (!view) {
    main.append(el('p', { class: 'notice' }, `There is no view "${r.view}".`));
    current = { leave() {} };
    return;
  }
  document.title = `${r.view} · Rutter`;
  current = { leave: view.enter(main, { reader, at, ...r }) };
}

// travel looks at another seq; 0 is the head.
function travel(seq) {
  at = seq;
  byId('now').hidden = seq === 0;
  byId('time').classList.toggle('past', seq !== 0);
  show();
}

async function tellTime(seq) {
  const out = byId('at-text');
  out.textContent = `#${number(seq)}`;
  const line = await reader.entry(seq).catch(() => null);
  if (line && Number(slider.value) === seq) out.textContent = `#${number(seq)}, ${absolute(line.time)}`;
}

slider.addEventListener('input', () => {
  const seq = Number(slider.value);
  clearTimeout(settle);
  settle = setTimeout(() => {
    if (seq >= Number(slider.max)) { travel(0); return; }
    tellTime(seq);
    travel(seq);
  }, 200);
});
byId('now').addEventListener('click', () => {
  slider.value = slider.max;
  byId('at-text').textContent = 'now';
  travel(0);
  slider.focus();
});

reader.onCluster((status) => {
  const d = status.detail || {};
  const head = headOf(status);
  if (document.activeElement === slider && at === 0 && Number(slider.value) < Number(slider.max)) return; // it is being dragged
  slider.min = d.floor || 0;
  slider.max = head;
  if (at === 0) slider.value = head;
  slider.setAttribute('aria-valuetext', at === 0 ? `now, entry ${head}` : `entry ${at} of ${head}`);
  if (at === 0) byId('at-text').textContent = `now, #${number(head)}`;
});
reader.onPulse((text, bad) => {
  const pulse = byId('pulse');
  if (pulse.textContent !== text) pulse.textContent = text;
  pulse.classList.toggle('bad', bad);
});

const search = searchBox(reader, () => at);

// The switches are remembered by the browser, if it may.
const remembered = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* it holds until the page is closed */ } };

const themes = ['auto', 'light', 'dark'];
function setTheme(theme) {
  const chosen = themes.includes(theme) ? theme : 'auto';
  if (chosen === 'auto') delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = chosen;
  const button = byId('theme');
  button.textContent = chosen[0].toUpperCase() + chosen.slice(1);
  button.setAttribute('aria-label', `Colours: ${chosen}`);
  return chosen;
}
let theme = setTheme(remembered('rutter-theme'));
byId('theme').addEventListener('click', () => {
  theme = setTheme(themes[(themes.indexOf(theme) + 1) % themes.length]);
  remember('rutter-theme', theme);
  dispatchEvent(new Event('rutter-theme')); // for what is painted and not styled
});

function setTimes(on) {
  byId('times').setAttribute('aria-pressed', String(on));
  byId('times').setAttribute('aria-label', 'Times as dates in UTC');
  absoluteTimes(on);
}
setTimes(remembered('rutter-times') === 'absolute');
byId('times').addEventListener('click', () => {
  const on = byId('times').getAttribute('aria-pressed') !== 'true';
  setTimes(on);
  remember('rutter-times', on ? 'absolute' : 'ago');
});

// Keys: 1 to 6 choose a view, / the search box, as on other consoles.
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const links = [...document.querySelectorAll('nav a')];
  if (e.key >= '1' && e.key <= String(links.length)) links[Number(e.key) - 1].click();
  if (e.key === '/') { search.focus(); e.preventDefault(); }
});
window.addEventListener('hashchange', show);
// A page that the browser keeps for "back" must not keep its stream: over HTTP/1.1 a browser
// has six connections to a server, and the next pages would wait for one.
window.addEventListener('pagehide', () => reader.close());
window.addEventListener('pageshow', (e) => { if (e.persisted) location.reload(); });
document.querySelector('.skip').addEventListener('click', (e) => { e.preventDefault(); main.focus(); });
show();

// What tests ask for: see package integration/console.
Object.defineProperty(window, 'rutter', { value: { updates: reader.updates, counts: () => reader.counts } });
