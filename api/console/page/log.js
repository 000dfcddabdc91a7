// The log as it happens: a fixed number of rows over a list of any length.

import { clear, debounce, el, field, headOf, notice, number, objectLink, set, value, visible } from './dom.js';
import { absolute, freshness, head, when } from './parts.js';

const rowHeight = 30; // px, as console.css has it
const spare = 4;      // rows beyond what is in sight
const slice = 12;     // rows drawn in one frame; the rest in the next ones
// Cells are padded to a width, in characters: a row is then one run of text,
// which is laid out and painted in a quarter of the time of five boxes.
const widths = { seq: 10, time: 13, kind: 14, actor: 16 };
const kinds = ['nic_tag', 'network', 'network_pool', 'fabric_vlan', 'ip', 'nic', 'aggregation', 'router', 'server', 'vm', 'vmm', 'migration', 'task', 'ticket', 'setting', 'token', 'revocation', 'grant', 'authority', 'certificate'];
// The server answers all of these over the whole log.
const filters = ['kind', 'action', 'object', 'cn', 'vnet', 'network', 'owner', 'ip', 'actor', 'path', 'since', 'until', 'text'];

export function enter(main, { reader, at, query }) {
  const choice = (name, label, values) => field(label, el('select', { name }, el('option', { value: '' }, 'any'), values.map((v) => el('option', { value: v }, v))));
  const text = (name, label, hint) => field(label, el('input', { name, type: 'search', autocomplete: 'off', spellcheck: 'false', placeholder: hint }));
  const rare = el('details', { class: 'rare' }, el('summary', {}, 'More filters'), el('div', { class: 'filters' },
    text('cn', 'CN', 'UUID'), text('vnet', 'Vnet', 'number'), text('network', 'Network', 'UUID'), text('owner', 'Owner', 'UUID'), text('ip', 'Address', 'IP'), text('path', 'Changed field', 'gateway')));
  const form = el('form', { class: 'logform', role: 'search', 'aria-label': 'Filter the log', onsubmit: (e) => e.preventDefault() },
    el('div', { class: 'filters' }, choice('kind', 'Kind', kinds), choice('action', 'Action', ['create', 'update', 'delete']), text('object', 'Object', 'id'), text('actor', 'Actor'),
      text('since', 'From', '1h, 2026-11-23 09:00'), text('until', 'Until', '5m, #1042'), text('text', 'Anywhere')), rare);
  for (const name of filters) if (query.get(name)) setValue(form.elements[name], query.get(name));
  rare.open = ['cn', 'vnet', 'network', 'owner', 'ip', 'path'].some((name) => query.get(name));

  const state = el('p', { class: 'quiet', id: 'log-state' });
  const back = el('button', { type: 'button', hidden: true, onclick: () => { list.scrollTop = 0; } });
  const rowsBox = el('div', { class: 'rows', onclick: (e) => { const row = e.target.closest('.row'); if (row) choose(rows[Number(row.dataset.place)].seq); } });
  const list = el('div', { class: 'loglist', tabindex: '0', role: 'table', 'aria-label': 'Entries, the newest first', 'aria-describedby': 'log-state' }, rowsBox);
  const detail = el('aside', { class: 'detail card', 'aria-label': 'Chosen entry', 'aria-live': 'polite' }, el('p', { class: 'quiet' }, 'Choose an entry to see what it changed: arrow keys, or a click.'));
  const more = el('button', { type: 'button', hidden: true, onclick: () => reader.send({ do: together ? 'older' : 'count' }) }, 'Look further');
  const fresh = freshness(reader, at);
  const wrong = el('div', {});
  main.append(head(at ? `The log up to #${number(at)}` : 'The log', fresh, command), form, wrong, el('div', { class: 'bar' }, state, more, back), el('div', { class: 'split' }, list, detail));

  const rows = []; // the pool, by place from the top of what is in sight
  let tall = -1; // px, of all rows
  let chosen = 0; // seq

  function values() {
    const out = {};
    for (const name of filters) if (form.elements[name].value.trim()) out[name] = form.elements[name].value.trim();
    return out;
  }
  // command prints the entries that are in the list, the oldest first.
  function command() {
    const { text: sought, since, ...rest } = values();
    if (at && !rest.until) rest.until = String(at);
    const flags = Object.entries(rest).flatMap(([name, v]) => [`--${name}`, v]);
    if (sought) return ['log', 'show', '-o', 'ndjson', ...flags, ...(since ? ['--from', since] : []), { piped: ['grep', '-iF', '--', sought] }];
    if (since || rest.cn) return ['log', 'show', ...flags, ...(since ? ['--from', since] : [])];
    return ['log', 'tail', '-n', String(Math.max(1, shownLines)), ...flags];
  }
  let shownLines = 0;
  function begin() {
    const query = values();
    reader.send({ do: 'log', query, until: query.until ? 0 : at, counted: Object.keys(query).length > 0 });
    list.scrollTop = 0;
  }
  const changed = debounce(250, () => {
    const q = new URLSearchParams(values()).toString();
    history.replaceState(null, '', q ? `#/log?${q}` : '#/log'); // can be sent to somebody
    begin();
  });
  form.addEventListener('input', changed);

  function pool(n) {
    while (rows.length < n) {
      const i = rows.length;
      // The texts are kept: to write one asks the page nothing.
      const texts = ['seq', 'time', 'kind', 'actor', 'what'].map((name) => [name, document.createTextNode('')]);
      const row = el('div', { role: 'row', class: 'row', hidden: true, 'data-place': i }, texts.map(([name, t]) => el('span', { role: 'cell', class: name }, t)));
      rows.push({ row, texts: texts.map(([, t]) => t), seq: 0, top: -1, action: '', hidden: true, selected: false });
      rowsBox.append(row);
    }
  }

  // drawRow makes a row of the pool what e is, or hides it, and touches nothing
  // that stays.
  function drawRow(r, e, top) {
    if (r.hidden !== !e) { r.hidden = !e; r.row.hidden = r.hidden; }
    if (!e) return;
    if (r.top !== top) { r.top = top; r.row.style.transform = `translateY(${top}px)`; }
    if (r.seq !== e.seq) {
      r.seq = e.seq;
      write(r.texts[0], cell(`#${e.seq}`, widths.seq));
      write(r.texts[1], cell(e.time.slice(11, 23), widths.time));
      r.row.title = absolute(e.time);
      write(r.texts[2], cell(e.kind, widths.kind));
      write(r.texts[3], cell(e.actor, widths.actor));
      write(r.texts[4], `${e.action === 'update' ? '' : `${e.action} `}${e.id} ${e.title}`);
      if (r.action !== e.action) { r.action = e.action; r.row.dataset.action = e.action; }
    }
    select(r);
  }
  function select(r) {
    const here = r.seq === chosen;
    if (r.selected !== here) { r.selected = here; r.row.setAttribute('aria-selected', String(here)); }
  }

  // draw draws some rows and gives true if there are more of them for the next
  // frame; at is how many are drawn.
  function draw(m, at) {
    if (at === 0) drawFrame(m);
    const end = Math.min(at + slice, rows.length);
    for (let i = at; i < end; i++) drawRow(rows[i], m.rows[i], (m.from + i) * rowHeight);
    return end < rows.length ? end : 0;
  }

  function drawFrame(m) {
    const height = m.length * rowHeight;
    if (tall !== height) { tall = height; rowsBox.style.height = `${height}px`; }
    pool(m.rows.length);
    const waiting = m.waiting > 0;
    if (back.hidden === waiting) back.hidden = !waiting;
    if (waiting) set(back, `${number(m.waiting)} newer: back to the top`);
    shownLines = m.length;
    const s = m.search;
    if (!s) return;
    together = s.together;
    set(state, said(m, s));
    const rest = s.next !== null && !s.busy && Object.keys(values()).length > 0;
    if (more.hidden === rest) more.hidden = !rest;
    if (s.failed !== failure) { failure = s.failed; clear(wrong).append(failure ? notice(failure) : ''); }
    if (!s.busy && !s.failed) fresh.got(m.live);
    // The list goes on where it ends in sight.
    if (s.more && !s.busy && !s.full && !s.failed && m.from + m.rows.length >= m.length - 2 * spare && m.from > 0) reader.send({ do: 'older' });
  }
  let failure = '', together = false;

  // said is how many entries there are, and how much of the log was looked at for that.
  function said(m, s) {
    const gaps = m.counts.gaps ? `; ${number(m.counts.gaps)} gaps` : '';
    const broken = m.broken ? `; not connected: ${m.broken}` : '';
    const detail = (reader.cluster || {}).detail || {};
    const kept = headOf(reader.cluster || {}) - (detail.floor || 0);
    if (!Object.keys(values()).length) return `${number(at ? at - (detail.floor || 0) : Math.max(kept, m.length))} entries are kept, ${number(m.length)} of them in this list${gaps}${broken}`;
    const found = s.found + m.counts.live;
    const list = `${number(m.length)} of them in this list`;
    if (s.next === null) return `${number(found)} ${found === 1 ? 'entry matches' : 'entries match'}, in the whole log: ${number(s.looked)} entries were looked at; ${list}${gaps}${broken}`;
    return `${number(found)} ${found === 1 ? 'entry matches' : 'entries match'} so far: the newest ${number(s.looked)} of ${number(kept)} entries were looked at${s.busy ? ', and it goes on' : ''}; ${list}${gaps}${broken}`;
  }

  function look() {
    const from = Math.max(0, Math.floor(list.scrollTop / rowHeight) - (list.scrollTop > rowHeight ? spare : 0));
    reader.send({ do: 'sight', from, n: Math.ceil(seen / rowHeight) + 2 * spare });
  }
  let seen = 600; // px; kept by the observer, so that no scroll measures the page
  const resized = new ResizeObserver((entries) => { seen = entries[0].contentRect.height; look(); });
  resized.observe(list);
  let looking = false;
  list.addEventListener('scroll', () => {
    if (looking) return;
    looking = true;
    requestAnimationFrame(() => { looking = false; look(); });
  }, { passive: true });

  async function choose(seq) {
    if (!seq) return;
    chosen = seq;
    rows.forEach(select);
    const line = await reader.entry(seq).catch((e) => ({ failed: e.message }));
    if (chosen === seq) showEntry(detail, line);
  }
  list.addEventListener('keydown', (e) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const visible = rows.filter((r) => !r.hidden);
    const i = visible.findIndex((r) => r.seq === chosen);
    const next = visible[i < 0 ? 0 : i + step];
    if (!next) { list.scrollTop += step * rowHeight; return; }
    choose(next.seq);
    // The rows' places are known: nothing is measured.
    if (next.top < list.scrollTop) list.scrollTop = next.top;
    else if (next.top + rowHeight > list.scrollTop + seen) list.scrollTop = next.top + rowHeight - seen;
  });

  const off = reader.on('log', draw);
  begin();
  if (query.get('seq')) choose(Number(query.get('seq')));
  return () => {
    off();
    fresh.leave();
    resized.disconnect();
    reader.send({ do: 'log', query: {} }); // the pulse goes on
  };
}

// setValue sets a control; a value that a list of choices lacks becomes one of them.
function setValue(control, v) {
  if (control.tagName === 'SELECT' && ![...control.options].some((o) => o.value === v)) control.append(el('option', { value: v }, v));
  control.value = v;
}

const write = (text, to) => {
  const shown = visible(String(to));
  if (text.data !== shown) text.data = shown;
};

// cell is a text of a width, with a space after it at least.
const cell = (text, width) => (text.length < width ? text.padEnd(width) : `${text.slice(0, width - 2)}… `);

// showEntry shows an entry whole: what changed, then what the object is after it.
export function showEntry(place, e) {
  clear(place);
  if (!e || e.failed) { place.append(el('p', {}, e ? e.failed : 'It is not kept any more.')); return; }
  const o = e.object || {};
  place.append(el('h3', {}, `#${number(e.seq)} ${e.kind} ${e.action}`), el('p', {}, objectLink(e.kind, e.id)), facts([
    ['time', when(e.time)], ['actor', e.actor], ['revision', e.revision], ['change', e.change_id], ['scopes', (e.scopes || []).map(scopeText).join(', ')], ['chain', e.chain],
  ]));
  if (e.action === 'update') place.append(diff((e.changed || []).map((c) => [c.path, c.old, o[c.path]])));
  else place.append(diff(Object.keys(o).map((k) => (e.action === 'delete' ? [k, o[k], undefined] : [k, undefined, o[k]]))));
  place.append(el('details', {}, el('summary', {}, 'The whole entry'), el('pre', { tabindex: '0' }, JSON.stringify(e, null, 2))));
}

const scopeText = (s) => (typeof s === 'string' ? s : JSON.stringify(s));

export function facts(rows) {
  return el('dl', {}, rows.filter(([, v]) => v !== undefined && v !== '').map(([k, v]) => [el('dt', {}, k), el('dd', {}, v instanceof Node ? v : value(v))]));
}

function diff(rows) {
  return el('table', { class: 'diff' }, el('caption', {}, 'What changed'),
    el('thead', {}, el('tr', {}, ['Field', 'Before', 'After'].map((h) => el('th', { scope: 'col' }, h)))),
    el('tbody', {}, rows.map(([path, before, after]) => el('tr', {}, el('th', { scope: 'row' }, path),
      el('td', { class: 'old' }, before === undefined ? '' : value(before)), el('td', { class: 'new' }, after === undefined ? '' : value(after))))));
}
