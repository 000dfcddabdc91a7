// The log as it happens: a fixed number of rows over a list of any length.

import { clear, debounce, el, field, number, objectLink, set, value } from './dom.js';

const rowHeight = 30; // px, as console.css has it
const spare = 4;      // rows beyond what is in sight
const kinds = ['nic_tag', 'network', 'network_pool', 'nic', 'aggregation', 'router', 'server', 'vm', 'vmm', 'migration', 'task', 'setting', 'token', 'revocation', 'grant'];
// Of these the server filters, so that a rare entry is found far back; of the
// others the worker does, among what it holds.
const byServer = ['kind', 'object', 'cn', 'vnet'];
const byWorker = ['action', 'actor', 'path', 'text'];

export function enter(main, { reader, at, query }) {
  const choice = (name, label, values) => field(label, el('select', { name }, el('option', { value: '' }, 'any'), values.map((v) => el('option', { value: v }, v))));
  const text = (name, label) => field(label, el('input', { name, type: 'search', autocomplete: 'off', spellcheck: 'false' }));
  const form = el('form', { class: 'filters', role: 'search', 'aria-label': 'Filter the log', onsubmit: (e) => e.preventDefault() },
    choice('kind', 'Kind', kinds), choice('action', 'Action', ['create', 'update', 'delete']), text('object', 'Object id'), text('cn', 'CN'),
    text('vnet', 'Vnet'), text('actor', 'Actor'), text('path', 'Changed field'), text('text', 'Anywhere'));
  for (const control of form.elements) control.value = query.get(control.name) || '';

  const state = el('p', { class: 'quiet', id: 'log-state' });
  const back = el('button', { type: 'button', hidden: true, onclick: () => { list.scrollTop = 0; } });
  const rowsBox = el('div', { class: 'rows' });
  const list = el('div', { class: 'loglist', tabindex: '0', role: 'table', 'aria-label': 'Entries, the newest first', 'aria-describedby': 'log-state' }, rowsBox);
  const detail = el('aside', { class: 'detail card', 'aria-label': 'Chosen entry', 'aria-live': 'polite' }, el('p', { class: 'quiet' }, 'Choose an entry to see what it changed: arrow keys, or a click.'));
  main.append(el('h2', {}, at ? `The log up to #${number(at)}` : 'The log as it happens'), form, el('div', { class: 'bar' }, state, back), el('div', { class: 'split' }, list, detail));

  const rows = []; // the pool, by place from the top of what is in sight
  let shape = { from: 0, length: 0 };
  let chosen = 0; // seq

  function values(names) {
    const out = {};
    for (const name of names) if (form.elements[name].value.trim()) out[name] = form.elements[name].value.trim();
    return out;
  }
  function begin() {
    const detailOfCluster = (reader.cluster || {}).detail || {};
    reader.send({ do: 'log', query: values(byServer), filters: values(byWorker), until: at, floor: detailOfCluster.floor || 0 });
    list.scrollTop = 0;
  }
  const changed = debounce(250, (name) => {
    const q = new URLSearchParams({ ...values(byServer), ...values(byWorker) }).toString();
    history.replaceState(null, '', q ? `#/log?${q}` : '#/log'); // can be sent to somebody
    if (byServer.includes(name)) begin(); else reader.send({ do: 'filters', filters: values(byWorker) });
  });
  form.addEventListener('input', (e) => changed(e.target.name));

  function pool(n) {
    while (rows.length < n) {
      const i = rows.length;
      const cells = ['seq', 'time', 'kind', 'what', 'actor'].map((name) => el('span', { role: 'cell', class: name }));
      const row = el('div', { role: 'row', class: 'row', hidden: true, onclick: () => choose(rows[i].seq) }, cells);
      rows.push({ row, cells, seq: 0, top: -1, action: '' });
      rowsBox.append(row);
    }
  }

  function draw(m) {
    shape = m;
    const height = `${m.length * rowHeight}px`;
    if (rowsBox.style.height !== height) rowsBox.style.height = height;
    pool(m.rows.length);
    for (let i = 0; i < rows.length; i++) {
      const r = rows[i], e = m.rows[i];
      if (!e) { if (!r.row.hidden) r.row.hidden = true; continue; }
      const top = (m.from + i) * rowHeight;
      if (r.top !== top) { r.top = top; r.row.style.transform = `translateY(${top}px)`; }
      if (r.seq !== e.seq) {
        r.seq = e.seq;
        set(r.cells[0], `#${e.seq}`);
        set(r.cells[1], e.time.slice(11, 23));
        set(r.cells[2], e.kind);
        set(r.cells[3], `${e.action === 'update' ? '' : `${e.action} `}${e.id} ${e.title}`);
        set(r.cells[4], e.actor);
        if (r.action !== e.action) { r.action = e.action; r.row.dataset.action = e.action; }
      }
      const here = e.seq === chosen;
      if ((r.row.getAttribute('aria-selected') === 'true') !== here) r.row.setAttribute('aria-selected', String(here));
      if (r.row.hidden) r.row.hidden = false;
    }
    const waiting = m.waiting > 0;
    if (back.hidden === waiting) back.hidden = !waiting;
    if (waiting) set(back, `${number(m.waiting)} newer: back to the top`);
    const found = m.counts.shown === m.counts.received ? '' : `, ${number(m.counts.shown)} of them shown`;
    set(state, `${number(m.counts.received)} entries${found}${m.counts.gaps ? `, ${m.counts.gaps} gaps` : ''}${m.broken ? `; not connected: ${m.broken}` : ''}`);
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
    for (const r of rows) r.row.setAttribute('aria-selected', String(r.seq === seq));
    const line = await reader.entry(seq).catch((e) => ({ failed: e.message }));
    if (chosen === seq) showEntry(detail, line);
  }
  list.addEventListener('keydown', (e) => {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    const visible = rows.filter((r) => !r.row.hidden);
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
    resized.disconnect();
    reader.send({ do: 'log', query: {}, filters: {} }); // the pulse goes on
  };
}

// showEntry shows an entry whole: what changed, then what the object is after it.
export function showEntry(place, e) {
  clear(place);
  if (!e || e.failed) { place.append(el('p', {}, e ? e.failed : 'It is not kept any more.')); return; }
  const o = e.object || {};
  place.append(el('h3', {}, `#${number(e.seq)} ${e.kind} ${e.action}`), el('p', {}, objectLink(e.kind, e.id)), facts([
    ['time', e.time], ['actor', e.actor], ['revision', e.revision], ['change', e.change_id], ['scopes', (e.scopes || []).map(scopeText).join(', ')], ['chain', e.chain],
  ]));
  if (e.action === 'update') place.append(diff((e.changed || []).map((c) => [c.path, c.old, o[c.path]])));
  else place.append(diff(Object.keys(o).map((k) => (e.action === 'delete' ? [k, o[k], undefined] : [k, undefined, o[k]]))));
  place.append(el('details', {}, el('summary', {}, 'The whole entry'), el('pre', { tabindex: '0' }, JSON.stringify(e, null, 2))));
}

const scopeText = (s) => (typeof s === 'string' ? s : JSON.stringify(s));

export function facts(rows) {
  return el('dl', {}, rows.filter(([, v]) => v !== undefined && v !== '').map(([k, v]) => [el('dt', {}, k), el('dd', {}, value(v))]));
}

function diff(rows) {
  return el('table', { class: 'diff' }, el('caption', {}, 'What changed'),
    el('thead', {}, el('tr', {}, ['Field', 'Before', 'After'].map((h) => el('th', { scope: 'col' }, h)))),
    el('tbody', {}, rows.map(([path, before, after]) => el('tr', {}, el('th', { scope: 'row' }, path),
      el('td', { class: 'old' }, before === undefined ? '' : value(before)), el('td', { class: 'new' }, after === undefined ? '' : value(after))))));
}
