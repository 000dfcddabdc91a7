// The frame of the page: views by the address's hash, the time bar, the worker.

import { byId, clear, el, headOf, number } from './dom.js';
import { Reader } from './reader.js';
import * as cluster from './cluster.js';
import * as logView from './log.js';
import * as cns from './cns.js';
import * as vnets from './vnets.js';
import * as objects from './objects.js';

const views = { cluster, log: logView, cns, vnets, objects, object: objects };
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
  return { view: parts[0] || 'cluster', parts: parts.slice(1), query: new URLSearchParams(query || '') };
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
  if (line && Number(slider.value) === seq) out.textContent = `#${number(seq)}, ${line.time.slice(0, 23).replace('T', ' ')}`;
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

// Keys: 1 to 5 choose a view, / the first filter, as on other consoles.
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
  const links = [...document.querySelectorAll('nav a')];
  if (e.key >= '1' && e.key <= String(links.length)) links[Number(e.key) - 1].click();
  if (e.key === '/') {
    const first = main.querySelector('input, select');
    if (first) { first.focus(); e.preventDefault(); }
  }
});
window.addEventListener('hashchange', show);
document.querySelector('.skip').addEventListener('click', (e) => { e.preventDefault(); main.focus(); });
show();

// What tests ask for: see package integration/console.
Object.defineProperty(window, 'rutter', { value: { updates: reader.updates, counts: () => reader.counts } });
