// Objects by kind, and one object with its history.

import { clear, debounce, el, field, listed, notice, number, objectLink, paths, table, value } from './dom.js';
import { showEntry } from './log.js';

const pageSize = 100;
const historyLines = 10000; // what a server gives at most
const columns = {
  nic_tag: ['name', 'mtu', 'uuid'],
  network: ['name', 'subnet', 'gateway', 'vlan_id', 'vnet_id', 'mtu', 'uuid'],
  nic: ['mac', 'ip', 'state', 'nic_tag', 'belongs_to_uuid', 'cn_uuid'],
  server: ['hostname', 'status', 'datacenter', 'setup', 'uuid'],
  vm: ['alias', 'state', 'brand', 'server_uuid', 'uuid'],
  vmm: ['state', 'instance_id', 'sled_id', 'id'],
  network_pool: ['name', 'family', 'networks', 'uuid'],
  fabric_vlan: ['name', 'vlan_id', 'vnet_id', 'owner_uuid'],
  ip: ['ip', 'reserved', 'belongs_to_type', 'belongs_to_uuid', 'network_uuid'],
  aggregation: ['name', 'lacp_mode', 'macs', 'nic_tags_provided', 'belongs_to_uuid'],
  router: ['name', 'addresses', 'vnet_ids', 'vm_uuid', 'cn_uuid', 'uuid'],
  migration: ['id', 'instance_id', 'source_state', 'target_state', 'time_target_updated'],
  task: ['task', 'status', 'server_uuid', 'created', 'id'],
  ticket: ['scope', 'id', 'action', 'status', 'server_uuid', 'uuid'],
  setting: ['name', 'value'],
};
const keyOf = (kind) => ({ nic_tag: 'name', nic: 'mac', vmm: 'id' })[kind] || 'uuid';
// refers says which fields are ids of what.
const refers = {
  network_uuid: 'network', cn_uuid: 'server', server_uuid: 'server', sled_id: 'server',
  instance_id: 'vm', vm_uuid: 'vm', nic_tag: 'nic_tag',
};

export function enter(main, context) {
  return context.view === 'object' ? enterOne(main, context) : enterList(main, context);
}

function enterList(main, { reader, at, query }) {
  const kind = el('select', { name: 'kind' }, Object.keys(columns).map((k) => el('option', { value: k }, k)));
  kind.value = query.get('kind') in columns ? query.get('kind') : 'network';
  const where = el('input', { name: 'where', type: 'search', placeholder: 'name=web', spellcheck: 'false', autocomplete: 'off' });
  where.value = query.get('where') || '';
  const place = el('div', {});
  main.append(el('h2', {}, at ? `Objects at #${number(at)}` : 'Objects'),
    el('form', { class: 'filters', onsubmit: (e) => e.preventDefault() }, field('Kind', kind), field('Where (FIELD=VALUE)', where)), place);
  let offset = 0;
  async function load() {
    const k = kind.value;
    where.disabled = !paths[k]; // the state as such is not filtered by fields
    const q = { limit: pageSize, offset };
    for (const pair of where.value.split(/[\s,]+/).filter(Boolean)) {
      const i = pair.indexOf('=');
      if (i > 0) q[pair.slice(0, i)] = pair.slice(i + 1);
    }
    history.replaceState(null, '', `#/objects?${new URLSearchParams({ kind: k, where: where.value })}`);
    try {
      const list = paths[k] ? (await reader.get(`/${paths[k]}`, q, at)).map((object) => ({ id: object[keyOf(k)], object })) : await reader.state({ ...q, kind: k }, at);
      if (k === kind.value) draw(k, list); // nobody chose another one meanwhile
    } catch (e) {
      clear(place).append(notice(e.message));
    }
  }
  function draw(k, list) {
    const which = list.length ? `${k}, ${number(offset + 1)} to ${number(offset + list.length)}` : offset ? `${k}, no more` : `${k}, none`;
    clear(place).append(table(which, columns[k], list.map((r) => columns[k].map((c) => cell(k, c, r)))),
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

// cell leads to the object from its first column and from that of its id.
function cell(kind, column, { id, object }) {
  if (column === columns[kind][0] || object[column] === id) return objectLink(kind, id, value(object[column]));
  return refer(column, object[column]);
}

function refer(name, v) {
  const kind = refers[name];
  if (!kind || typeof v !== 'string' || !v || v.includes('/')) return value(v);
  return objectLink(kind, v);
}

function enterOne(main, { reader, at, parts }) {
  const [kind, id] = parts;
  if (!listed.has(kind)) { main.append(notice(`There is no kind "${kind}".`)); return () => {}; }
  const object = el('section', { class: 'card', 'aria-label': 'The object' });
  const past = el('section', { 'aria-label': 'History' });
  const detail = el('aside', { class: 'detail card', 'aria-label': 'Chosen entry', 'aria-live': 'polite' }, el('p', { class: 'quiet' }, 'Choose an entry of the history.'));
  main.append(el('h2', {}, `${kind} ${id}`), el('div', { class: 'split' }, el('div', {}, object, past), detail));
  const asked = paths[kind] ? reader.get(`/${paths[kind]}/${encodeURIComponent(id)}`, null, at) : reader.state({ kind, object: id }, at).then((found) => {
    if (!found.length) throw new Error(at ? 'It was not there then.' : 'It is gone: the history says since when.');
    return found[0].object;
  });
  asked.then((o) => {
    object.append(el('h3', {}, at ? `As of #${number(at)}` : 'Now'),
      el('dl', {}, Object.keys(o).map((k) => [el('dt', {}, k), el('dd', {}, refer(k, o[k]))])));
    if (kind === 'network' && o.fabric) object.append(el('p', {}, el('a', { href: `#/vnets/${o.vnet_id}` }, `Picture of vnet ${o.vnet_id}`)));
  }, (e) => object.append(notice(e.message)));
  reader.lines('/log/history', { kind, object: id, limit: historyLines }).then((lines) => {
    const rows = lines.reverse().map((e) => [
      el('button', { type: 'button', class: 'link', onclick: () => showEntry(detail, e) }, `#${number(e.seq)}`), e.time.slice(0, 23).replace('T', ' '), e.action,
      (e.changed || []).map((c) => c.path).join(', '), e.actor]);
    past.append(table(`History, ${number(rows.length)} ${rows.length === 1 ? 'entry' : 'entries'}, the newest first`, ['Entry', 'Time', 'Action', 'Changed', 'By'], rows));
    if (lines.length) showEntry(detail, lines[0]);
  }, (e) => past.append(notice(e.message)));
  return () => {};
}

