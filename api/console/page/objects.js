// Objects by kind, and one object with its history.

import { clear, el, field, listed, notice, number, table, value } from './dom.js';
import { showEntry } from './log.js';
import { Names } from './names.js';
import { AskedTable, PagedTable } from './pages.js';
import { freshness, head, named, when } from './parts.js';

const pageSize = 100;
const historyLines = 10000; // what a server gives at most
const mostHistory = 50000;  // entries of one object that are read
const fewReferring = 6;

// kinds: where a kind is listed ('' for what only the state has), the command that lists
// it, the columns of its list, and the field that names it.
const kinds = {
  network: { path: 'networks', command: 'network', columns: ['name', 'subnet', 'gateway', 'vlan_id', 'vnet_id', 'mtu'], name: 'name' },
  nic: { path: 'nics', command: 'nic', key: 'mac', columns: ['mac', 'ip', 'state', 'network_uuid', 'belongs_to_uuid', 'cn_uuid'] },
  vm: { path: 'vms', command: 'inventory', columns: ['alias', 'state', 'brand', 'server_uuid'], name: 'alias' },
  vmm: { path: 'vmms', command: 'vmm', key: 'id', columns: ['id', 'state', 'instance_id', 'sled_id'] },
  server: { path: 'servers', command: 'cn', columns: ['hostname', 'status', 'datacenter', 'setup'], name: 'hostname' },
  nic_tag: { path: 'nic_tags', command: 'tag', key: 'name', columns: ['name', 'mtu'], name: 'name' },
  network_pool: { path: 'pools', command: 'pool', columns: ['name', 'family', 'networks'], name: 'name' },
  fabric_vlan: { path: 'fabric_vlans', command: 'vlan', columns: ['name', 'vlan_id', 'vnet_id', 'owner_uuid'], name: 'name', id: (o) => `${o.owner_uuid}:${o.vlan_id}` },
  ip: { path: 'ips', command: 'ip', columns: ['ip', 'network_uuid', 'reserved', 'belongs_to_type', 'belongs_to_uuid'], name: 'ip', id: (o) => `${o.network_uuid}:${o.ip}` },
  aggregation: { path: 'server_aggregations', command: 'aggregation', columns: ['name', 'lacp_mode', 'macs', 'nic_tags_provided', 'belongs_to_uuid'], name: 'name', id: (o) => `${o.belongs_to_uuid}-${o.name}` },
  router: { path: 'fabric_routers', command: 'router', columns: ['name', 'networks', 'addresses', 'vm_uuid', 'cn_uuid'], name: 'name' },
  migration: { path: 'migrations', command: 'migration', key: 'id', columns: ['id', 'instance_id', 'source_state', 'target_state', 'time_target_updated'] },
  setting: { path: 'settings', command: 'setting', key: 'name', columns: ['name', 'value'], name: 'name' },
  task: { path: '', columns: ['task', 'status', 'server_uuid', 'created', 'finished', 'failure'], name: 'task' },
  ticket: { path: '', columns: ['scope', 'id', 'action', 'status', 'server_uuid'] },
  certificate: { path: '', columns: ['serial', 'identity', 'authority', 'not_before', 'not_after'], name: 'identity' },
  authority: { path: '', columns: ['name', 'not_before', 'not_after'] },
  grant: { path: '', columns: ['subject', 'owner_uuids', 'read', 'write'], name: 'subject' },
  token: { path: '', columns: ['role', 'subject', 'created', 'expires'] },
  revocation: { path: '', columns: ['serial', 'subject', 'reason', 'created'] },
};
const idOf = (kind, o) => (kinds[kind].id ? kinds[kind].id(o) : o[kinds[kind].key || 'uuid']);
// refers says which fields are ids of what.
const refers = {
  network_uuid: 'network', networks: 'network', cn_uuid: 'server', server_uuid: 'server', sled_id: 'server',
  instance_id: 'vm', vm_uuid: 'vm', nic_tag: 'nic_tag', network_uuids: 'network',
};
const referred = (name, object) => (name === 'belongs_to_uuid' ? { zone: 'vm', server: 'server' }[object.belongs_to_type || 'zone'] : refers[name]);
// referring says which lists show what refers to an object of a kind: kind, field, words.
const referring = {
  network: [['nic', 'network_uuid', 'NICs on it'], ['ip', 'network_uuid', 'Reserved addresses'], ['network_pool', 'networks', 'Pools with it'], ['router', 'networks', 'Routers of it']],
  server: [['nic', 'cn_uuid', 'NICs on it'], ['vm', 'server_uuid', 'VMs on it'], ['vmm', 'sled_id', 'VMMs on it'], ['aggregation', 'belongs_to_uuid', 'Aggregations of it'], ['router', 'cn_uuid', 'Routers on it']],
  vm: [['nic', 'belongs_to_uuid', 'NICs of it'], ['vmm', 'instance_id', 'VMMs of it'], ['migration', 'instance_id', 'Migrations of it'], ['router', 'vm_uuid', 'Routers in it']],
  nic_tag: [['network', 'nic_tag', 'Networks on it'], ['nic', 'nic_tag', 'NICs on it']],
};
// What a list takes beside filters.
const notFilters = new Set(['limit', 'offset', 'at', 'min_seq', 'consistent']);
const isTime = (v) => typeof v === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(v);

export function enter(main, context) {
  return context.view === 'object' ? enterOne(main, context) : enterList(main, context);
}

let described = null; // a promise of the API's description: it says what a list filters by
async function filtersOf(reader, kind) {
  if (!kinds[kind].path) return ['cn', 'vnet', 'object'];
  described ||= reader.get('/openapi.json');
  const api = await described.catch((e) => { described = null; throw e; });
  const names = ((api.paths[`/${kinds[kind].path}`] || {}).get.parameters || []).map((p) => p.name || (p.$ref || '').split('/').pop());
  return names.filter((n) => n && !notFilters.has(n));
}

function enterList(main, { reader, at, query }) {
  const kind = query.get('kind') in kinds ? query.get('kind') : 'network';
  const filters = new URLSearchParams([...query].filter(([k]) => k !== 'kind' && k !== 'where'));
  for (const pair of (query.get('where') || '').split(/[\s,]+/).filter(Boolean)) if (pair.indexOf('=') > 0) filters.set(pair.slice(0, pair.indexOf('=')), pair.slice(pair.indexOf('=') + 1));
  const names = new Names(reader, at);
  const fresh = freshness(reader, at, () => again());
  const choose = el('select', { name: 'kind' }, Object.keys(kinds).map((k) => el('option', { value: k }, k.replace('_', ' '))));
  choose.value = kind;
  const name = el('select', { name: 'field' });
  const wanted = el('input', { name: 'value', type: 'search', spellcheck: 'false', autocomplete: 'off' });
  const chips = el('ul', { class: 'chips', 'aria-label': 'Filters' });
  const problem = el('div', { 'aria-live': 'polite' });
  const go = (k, f) => { location.hash = `#/objects?${new URLSearchParams([['kind', k], ...f])}`; };
  const list = new AskedTable(kind.replace('_', ' '), kinds[kind].columns.map(titleOf), (offset, limit) => ask(reader, names, kind, filters, offset, limit, at),
    ({ id, object }) => kinds[kind].columns.map((c, i) => (i === 0 ? named(kind === 'server' ? 'cn' : kind, id, shown(object[c]) || id, `#/object/${kind}/${encodeURIComponent(id)}`) : cell(names, c, object))), pageSize);
  // The past, and kinds without lists of their own, are read of the state: what its command
  // does not filter by is sought in the lines.
  const words = () => {
    if (kinds[kind].path && !at) return [kinds[kind].command, 'list', ...[...filters].map(([k, v]) => `${k}=${v}`)];
    const scope = ([k]) => k === 'cn' || k === 'vnet';
    const sought = [...filters].filter((f) => !scope(f)).map(([, v]) => ({ piped: ['grep', '-iF', '--', v] }));
    return ['log', 'state', '--kind', kind, ...[...filters].filter(scope).flatMap(([k, v]) => [`--${k}`, v]), ...(at ? ['--at', String(at)] : []), ...(sought.length ? ['-o', 'ndjson'] : []), ...sought];
  };
  main.append(head(at ? `Objects at #${number(at)}` : 'Objects', fresh, words),
    el('form', { class: 'filters', role: 'search', 'aria-label': 'Choose objects', onsubmit: (e) => { e.preventDefault(); if (wanted.value.trim()) { filters.set(name.value, wanted.value.trim()); go(kind, filters); } } },
      field('Kind', choose), field('Filter by', name), field('Is', wanted), el('button', {}, 'Filter')),
    chips, problem, list.node);
  chips.append(...[...filters].map(([k, v]) => el('li', {}, `${k} is ${v}`, el('button', { type: 'button', 'aria-label': `Take away the filter ${k}`, onclick: () => { filters.delete(k); go(kind, filters); } }, '×'))));
  chips.hidden = !chips.children.length;
  choose.addEventListener('change', () => go(choose.value, []));
  filtersOf(reader, kind).then((all) => name.append(...all.map((f) => el('option', { value: f }, f))), (e) => clear(problem).append(notice(`The fields to filter by are not known: ${e.message}`)));
  async function again() {
    try {
      const counts = filters.size || at ? null : (await reader.get('/status')).objects;
      await list.read(list.from, counts && kind in counts ? counts[kind] : undefined);
      clear(problem);
      fresh.got(!at);
    } catch (e) {
      clear(problem).append(notice(e.message));
      fresh.failed(e.message);
    }
  }
  again();
  const off = at ? () => {} : reader.onChange(again, [kind]);
  return () => { off(); fresh.leave(); };
}

const titleOf = (name) => name.replace(/_uuid$|_id$/, '').replaceAll('_', ' ');
const shown = (v) => (v === undefined || v === null || v === '' ? '' : value(v));

// ask reads a page of a list, and the names of what it refers to.
async function ask(reader, names, kind, filters, offset, limit, at) {
  const query = { ...Object.fromEntries(filters), limit, offset };
  const rows = kinds[kind].path ? (await reader.get(`/${kinds[kind].path}`, query, at)).map((object) => ({ id: idOf(kind, object), object }))
    : (await reader.state({ ...query, kind }, at)).map(({ id, object }) => ({ id, object }));
  await learn(names, kinds[kind].columns, rows.map((r) => r.object));
  return rows;
}

// learn asks for the names of what the fields of objects refer to.
async function learn(names, fields, objects) {
  const ids = {};
  for (const o of objects) for (const f of fields) if (referred(f, o)) (ids[referred(f, o)] ||= []).push(...[o[f]].flat());
  await Promise.all(Object.entries(ids).map(([kind, list]) => names.learn(kind, list)));
}

// cell is one field of an object: names before ids, times as times.
function cell(names, name, object) {
  const v = object[name], kind = referred(name, object);
  if (isTime(v)) return when(v);
  if (kind && Array.isArray(v)) return el('span', {}, v.map((id, i) => [i ? ', ' : '', named(kind, id, names.of(kind, id))]));
  if (kind && typeof v === 'string' && v && !v.includes('/')) return named(kind === 'server' ? 'cn' : kind, v, names.of(kind, v));
  if (name === 'vnet_id' && v) return el('a', { href: `#/vnets/${v}` }, String(v));
  return value(v);
}

function enterOne(main, { reader, at, parts }) {
  const [kind, id] = parts;
  if (!(kind in kinds) && !listed.has(kind)) { main.append(notice(`There is no kind "${kind}".`)); return () => {}; }
  const about = kinds[kind] || { path: '', columns: [] };
  const names = new Names(reader, at);
  const fresh = freshness(reader, at, () => load());
  const title = el('span', {}, `${kind.replace('_', ' ')} ${id}`);
  const object = el('section', { class: 'card', 'aria-label': 'The object' });
  const links = el('section', { 'aria-label': 'What refers to it' });
  const detail = el('aside', { class: 'detail card', 'aria-label': 'Chosen entry', 'aria-live': 'polite' }, el('p', { class: 'quiet' }, 'Choose an entry of the history.'));
  let chosen = 0, left = false;
  const past = new PagedTable('History, the newest first', ['Entry', 'Time', 'Action', 'Changed', 'By'], (e) => [
    el('button', { type: 'button', class: 'link', onclick: () => { chosen = e.seq; showEntry(detail, e); } }, `#${number(e.seq)}`), when(e.time), e.action, (e.changed || []).map((c) => c.path).join(', ') || '–', e.actor], 20);
  const top = head('', fresh, () => ['log', 'history', kind, id]);
  top.querySelector('h2').append(title);
  main.append(top, el('div', { class: 'split' }, el('div', {}, object, links, past.node), detail));

  async function read() {
    const found = await reader.state({ kind, object: id }, at);
    if (!found.length) throw new Error(at ? 'It was not there then.' : 'It is gone: the history says since when.');
    if (about.path) return reader.get(`/${about.path}/${encodeURIComponent(id)}`, null, at);
    return found[0].object;
  }

  async function load() {
    const [got, lines] = await Promise.allSettled([read(), historyOf(reader, kind, id, at)]);
    if (left) return;
    if (lines.status === 'fulfilled') {
      past.caption = lines.value.more ? `History, the first ${number(mostHistory)} entries, the newest of them first` : 'History, the newest first';
      past.set(lines.value.entries);
      if (!chosen && lines.value.entries.length) { chosen = lines.value.entries[0].seq; showEntry(detail, lines.value.entries[0]); }
    } else past.node.append(notice(lines.reason.message));
    if (got.status === 'rejected') {
      const gone = !got.reason.status;
      clear(object).append(notice(got.reason.message));
      if (gone) fresh.got(!at); else fresh.failed(got.reason.message);
      return;
    }
    const o = got.value;
    await learn(names, Object.keys(o), [o]);
    if (left) return;
    const name = about.name && o[about.name];
    if (name) clear(title).append(`${kind.replace('_', ' ')} `, named(kind, id, value(name), location.hash));
    draw(o, lines.status === 'fulfilled' ? blameOf(lines.value.entries) : new Map());
    fresh.got(!at);
  }

  function draw(o, blame) {
    const fields = Object.keys(o).map((k) => [k, cell(names, k, o), blame.get(k) ? el('span', { class: 'unit' }, `#${number(blame.get(k).seq)} `, when(blame.get(k).time), ` by ${blame.get(k).actor}`) : '']);
    clear(object).append(table(at ? `As of #${number(at)}` : 'Now', ['Field', 'Value', 'Set by'], fields));
    const to = [];
    if (kind === 'network' && o.fabric) to.push(el('a', { href: `#/vnets/${o.vnet_id}` }, `Picture of vnet ${o.vnet_id}`));
    if (kind === 'server') to.push(el('a', { href: `#/cns/${o.uuid}` }, 'Page of this compute node'));
    if (to.length) object.append(el('p', {}, to));
  }

  load();
  refer(reader, kind, id, at, links).catch((e) => links.append(notice(e.message)));
  const off = at ? () => {} : reader.onChange(load, [kind], id);
  return () => { left = true; off(); fresh.leave(); };
}

async function historyOf(reader, kind, id, at) {
  const entries = [];
  let after = 0, more = false;
  for (;;) {
    const some = await reader.lines('/log/history', { kind, object: id, after, limit: historyLines });
    entries.push(...some);
    if (some.length < historyLines) break;
    if (entries.length >= mostHistory) { more = true; break; }
    after = some[some.length - 1].seq;
  }
  return { entries: entries.filter((e) => !at || e.seq <= at).reverse(), more };
}

// blameOf says of each field which entry set it last. entries are the newest first.
function blameOf(entries) {
  const blame = new Map();
  for (const e of entries) {
    const paths = e.action === 'update' ? (e.changed || []).map((c) => c.path) : Object.keys(e.object || {});
    for (const p of paths) if (!blame.has(p)) blame.set(p, e);
    if (e.action === 'create') break; // before it was another object of this id
  }
  return blame;
}

// refer lists what refers to an object: the first few, and the way to all.
async function refer(reader, kind, id, at, place) {
  const rows = await Promise.all((referring[kind] || []).map(async ([other, name, words]) => {
    const found = await reader.get(`/${kinds[other].path}`, { [name]: id, limit: fewReferring }, at);
    return { other, name, words, found };
  }));
  const some = rows.filter((r) => r.found.length);
  if (!some.length) return;
  place.append(table('What refers to it', ['What', 'Which'], some.map((r) => [
    el('a', { href: `#/objects?${new URLSearchParams({ kind: r.other, [r.name]: id })}` }, r.words),
    el('span', {}, r.found.slice(0, fewReferring - 1).map((o, i) => [i ? ', ' : '', named(r.other, idOf(r.other, o), kinds[r.other].name && o[kinds[r.other].name])]), r.found.length === fewReferring ? ' …' : '')])));
}
