// Objects by kind, and one object with its history.

import { clear, debounce, el, field, notice, number, objectLink, paths, table, value } from './dom.js';
import { showEntry } from './log.js';

const pageSize = 100;
const columns = {
  nic_tag: ['name', 'mtu', 'uuid'],
  network: ['name', 'subnet', 'gateway', 'vlan_id', 'vnet_id', 'mtu', 'uuid'],
  nic: ['mac', 'ip', 'state', 'nic_tag', 'belongs_to_uuid', 'cn_uuid'],
  server: ['hostname', 'status', 'datacenter', 'setup', 'uuid'],
  vm: ['alias', 'state', 'brand', 'server_uuid', 'uuid'],
  vmm: ['state', 'instance_id', 'sled_id', 'id'],
};
const keys = { nic_tag: 'name', nic: 'mac', vmm: 'id' };
// refers says which fields are ids of what.
const refers = { network_uuid: 'network', cn_uuid: 'server', server_uuid: 'server', sled_id: 'server', instance_id: 'vm', nic_tag: 'nic_tag' };

export function enter(main, context) {
  return context.view === 'object' ? enterOne(main, context) : enterList(main, context);
}

function enterList(main, { reader, at, query }) {
  const kind = el('select', { name: 'kind' }, Object.keys(paths).map((k) => el('option', { value: k }, k)));
  kind.value = query.get('kind') in paths ? query.get('kind') : 'network';
  const where = el('input', { name: 'where', type: 'search', placeholder: 'name=web', spellcheck: 'false', autocomplete: 'off' });
  where.value = query.get('where') || '';
  const place = el('div', {});
  main.append(el('h2', {}, at ? `Objects at #${number(at)}` : 'Objects'),
    el('form', { class: 'filters', onsubmit: (e) => e.preventDefault() }, field('Kind', kind), field('Where (FIELD=VALUE)', where)), place);
  let offset = 0;
  async function load() {
    const q = { limit: pageSize, offset };
    for (const pair of where.value.split(/[\s,]+/).filter(Boolean)) {
      const i = pair.indexOf('=');
      if (i > 0) q[pair.slice(0, i)] = pair.slice(i + 1);
    }
    history.replaceState(null, '', `#/objects?${new URLSearchParams({ kind: kind.value, where: where.value })}`);
    try {
      draw(await reader.get(`/${paths[kind.value]}`, q, at));
    } catch (e) {
      clear(place).append(notice(e.message));
    }
  }
  function draw(list) {
    const k = kind.value;
    clear(place).append(table(`${k}, ${number(offset + (list.length ? 1 : 0))} to ${number(offset + list.length)}`, columns[k], list.map((o) => columns[k].map((c) => cell(k, c, o)))),
      el('p', { class: 'bar' },
        el('button', { type: 'button', disabled: offset === 0, onclick: () => { offset = Math.max(0, offset - pageSize); load(); } }, 'Earlier'),
        el('button', { type: 'button', disabled: list.length < pageSize, onclick: () => { offset += pageSize; load(); } }, 'Further')));
  }
  const again = debounce(250, () => { offset = 0; load(); });
  kind.addEventListener('change', () => { where.value = ''; again(); });
  where.addEventListener('input', again);
  load();
  return () => {};
}

function cell(kind, column, o) {
  const key = keys[kind] || 'uuid';
  if (column === key || column === columns[kind][0]) return objectLink(kind, o[key], value(o[column]));
  return refer(column, o[column]);
}

function refer(name, v) {
  const kind = refers[name];
  if (!kind || typeof v !== 'string' || !v || v.includes('/')) return value(v);
  return objectLink(kind, v);
}

function enterOne(main, { reader, at, parts }) {
  const [kind, id] = parts;
  if (!paths[kind]) { main.append(notice(`There is no kind "${kind}".`)); return () => {}; }
  const object = el('section', { class: 'card', 'aria-label': 'The object' });
  const past = el('section', { 'aria-label': 'History' });
  const detail = el('aside', { class: 'detail card', 'aria-label': 'Chosen entry', 'aria-live': 'polite' }, el('p', { class: 'quiet' }, 'Choose an entry of the history.'));
  main.append(el('h2', {}, `${kind} ${id}`), el('div', { class: 'split' }, el('div', {}, object, past), detail));
  const path = `/${paths[kind]}/${encodeURIComponent(id)}`;
  reader.get(path, null, at).then((o) => {
    object.append(el('h3', {}, at ? `As of #${number(at)}` : 'Now'),
      el('dl', {}, Object.keys(o).map((k) => [el('dt', {}, k), el('dd', {}, refer(k, o[k]))])));
    if (kind === 'network' && o.fabric) object.append(el('p', {}, el('a', { href: `#/vnets/${o.vnet_id}` }, `Picture of vnet ${o.vnet_id}`)));
  }, (e) => object.append(notice(e.message)));
  reader.lines(`${path}/history`).then((lines) => {
    const rows = lines.reverse().map((e) => [
      el('button', { type: 'button', class: 'link', onclick: () => showEntry(detail, e) }, `#${number(e.seq)}`), e.time.slice(0, 23).replace('T', ' '), e.action,
      (e.changed || []).map((c) => c.path).join(', '), e.actor]);
    past.append(table(`History, ${number(rows.length)} entries, the newest first`, ['Entry', 'Time', 'Action', 'Changed', 'By'], rows));
    if (lines.length) showEntry(detail, lines[0]);
  }, (e) => past.append(notice(e.message)));
  return () => {};
}

