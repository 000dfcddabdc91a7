// Vnets: which compute nodes are on one, how far each is with its links, and where the
// traffic between two NICs goes.

import { clear, debounce, duration, el, field, notice, number, set, table, value } from './dom.js';
import { copyCommand, freshness, head, named } from './parts.js';
import { Names } from './names.js';
import { PagedTable } from './pages.js';
import { pathOf } from './tracepath.js';
import { states, VNetMap, words } from './vnetmap.js';

const page = 1000;
const mostNICs = 20000; // read for a picture of the past
const mostNodes = 2000; // in one answer
const nicsOfNode = 100; // shown of the chosen node
const mostGroups = 16;  // the smaller ones stand together
const pollMs = 3000;    // sessions move without entries of the log
const linkStates = [...states, 'idle'];

export function enter(main, { reader, at, parts, query }) {
  let vnet = Number(parts[0]) || 0, left = false, picture = null, before = '';
  const names = new Names(reader, at);
  const fresh = freshness(reader, at, () => load());
  const choose = el('select', { name: 'vnet' });
  const group = el('select', { name: 'group' }, ['state', 'zone', 'name', 'nothing'].map((g) => el('option', { value: g }, { state: 'state', zone: 'zone (datacenter)', name: 'beginning of the name', nothing: 'nothing' }[g])));
  const only = el('select', { name: 'state' }, el('option', { value: '' }, 'any'), states.map((s) => el('option', { value: s }, words[s])));
  const find = el('input', { name: 'find', type: 'search', autocomplete: 'off', spellcheck: 'false' });
  group.value = query.get('group') || 'state';
  only.value = query.get('state') || '';
  const say = el('p', { class: 'quiet', role: 'status' });
  const bar = el('ul', { class: 'legend states' });
  const canvas = el('canvas', { class: 'map', tabindex: '0', role: 'img', 'aria-label': 'Compute nodes of the vnet' });
  const chosen = el('section', { class: 'card', 'aria-label': 'Chosen compute node', 'aria-live': 'polite' }, el('p', { class: 'quiet' }, 'Choose a compute node, by pointer, arrow keys or in the table.'));
  const nodes = new PagedTable('Compute nodes', ['Node', 'State', 'Links', 'Behind', 'Underlay', 'Why'], nodeRow, 20);
  const nets = new PagedTable('Networks', ['Network', 'Subnet', 'VLAN', 'NICs'], (n) => [named('network', n.uuid, n.name), n.subnet, value(n.vlan_id), number(n.nics)], 10);
  const trace = traceForm(reader, at, query);
  const body = el('div', { hidden: true },
    bar,
    el('div', { class: 'vnetsplit' }, el('div', {}, el('figure', { class: 'picture' }, el('div', { class: 'canvas' }, canvas), el('figcaption', {}, 'A square is a compute node, in the state of its worst link.')), trace.node), chosen),
    nodes.node, nets.node);
  main.append(head(at ? `Vnets at #${number(at)}` : 'Vnets', fresh, () => (at ? ['log', 'state', '--kind', 'nic', '--vnet', String(vnet), '--at', String(at)] : ['cn', 'vnet', String(vnet)])),
    el('div', { class: 'filters' }, field('Vnet', choose), field('Group by', group), field('State', only), field('Name or UUID', find)), say, body);
  const map = new VNetMap(canvas, showNode);
  choose.addEventListener('change', () => { location.hash = `#/vnets/${choose.value}`; });
  const refilter = () => {
    const q = new URLSearchParams({ ...(group.value !== 'state' && { group: group.value }), ...(only.value && { state: only.value }) }).toString();
    history.replaceState(null, '', `#/vnets/${vnet}${q ? `?${q}` : ''}`);
    if (picture) show();
  };
  for (const control of [group, only]) control.addEventListener('change', refilter);
  find.addEventListener('input', debounce(150, refilter));

  function nodeRow(n) {
    return [named('cn', n.cn_uuid, n.hostname), el('span', { class: `badge ${n.state}` }, words[n.state]), linkText(n), n.state === 'unknown' ? '–' : n.lag_ms ? duration(n.lag_ms) : 'no',
      value(n.underlay_ip), value(n.why)];
  }

  function show() {
    const text = find.value.trim().toLowerCase();
    const list = picture.cns.filter((n) => (!only.value || n.state === only.value) && (!text || n.hostname?.toLowerCase().includes(text) || n.cn_uuid.includes(text)));
    map.set(groupsOf(list, group.value));
    canvas.setAttribute('aria-label', `Map of ${list.length} of ${picture.cns_total} compute nodes on vnet ${vnet}: ${states.map((s) => `${picture.states[s] || 0} ${words[s]}`).join(', ')}`);
    clear(bar).append(...linkStates.filter((s) => picture.links[s] || s === 'programmed').map((s) => el('li', { class: `grade ${s}` }, `${many(picture.links[s], 'link')} ${words[s]}`)));
    nodes.set(list);
    nets.set(picture.networks);
    const more = picture.cns_total > picture.cns.length ? `; of ${number(picture.cns_total)} nodes the ${number(picture.cns.length)} that need a look most are here` : '';
    set(say, `${many(picture.networks_total, 'network')}, ${many(picture.nics, 'NIC')} on ${many(picture.cns_total, 'compute node')}${picture.unplaced ? `, ${number(picture.unplaced)} on none` : ''}${more}${picture.trouble ? `. ${picture.trouble}` : ''}`);
    body.hidden = false;
    map.draw();
  }

  async function load() {
    try {
      const got = at ? await past(reader, at, vnet) : await reader.get(`/vnets/${vnet}`, { limit: mostNodes });
      if (left) return;
      fresh.got(!at);
      const now = JSON.stringify(got);
      if (now.replace(/"seq":\d+/, '') === before) return;
      before = now.replace(/"seq":\d+/, '');
      picture = got;
      show();
    } catch (e) {
      fresh.failed(e.message);
      if (!picture) set(say, e.message);
    }
  }

  async function showNode(n) {
    const links = el('dl', {}, linkStates.filter((s) => n.links[s]).map((s) => [el('dt', {}, words[s]), el('dd', {}, number(n.links[s]))]));
    const place = el('div', {}, el('p', { class: 'quiet' }, 'Reading its NICs.'));
    clear(chosen).append(el('h3', {}, named('cn', n.cn_uuid, n.hostname), ' ', el('span', { class: `badge ${n.state}` }, words[n.state])), el('p', {}, n.why || `${many(n.nics, 'NIC')}, underlay ${value(n.underlay_ip)}`), links, place);
    chosen.dataset.node = n.cn_uuid;
    try {
      const found = await reader.get('/nics', { vnet_id: vnet, cn_uuid: n.cn_uuid, limit: nicsOfNode }, at);
      await names.learn('vm', found.filter((x) => x.belongs_to_type === 'zone').map((x) => x.belongs_to_uuid));
      if (left || chosen.dataset.node !== n.cn_uuid) return;
      clear(place).append(table(found.length === nicsOfNode && n.nics > nicsOfNode ? `Its NICs, ${nicsOfNode} of ${number(n.nics)}` : 'Its NICs', ['NIC', 'Address', 'Trace'], found.map((x) => {
        const name = names.of('vm', x.belongs_to_uuid);
        const end = (where) => el('button', { type: 'button', class: 'small', 'aria-label': `Trace ${where} ${x.mac}`, onclick: () => trace.fill(where, x.mac) }, where);
        return [named('nic', x.mac, name), value(x.ip), el('span', {}, end('from'), ' ', end('to'))];
      })));
    } catch (e) {
      clear(place).append(notice(e.message));
    }
  }

  (async () => {
    const networks = await all(reader, '/networks', { fabric: 'true' }, at, 50 * page);
    if (left) return;
    const byVNet = Map.groupBy(networks, (n) => n.vnet_id);
    const ids = [...byVNet.keys()].sort((a, b) => a - b);
    if (!ids.length) { set(say, 'The log has no fabric network.'); fresh.got(!at); return; }
    choose.append(...ids.map((v) => el('option', { value: String(v) }, `${v}: ${byVNet.get(v).map((n) => n.name).join(', ').slice(0, 60)}`)));
    vnet = byVNet.has(vnet) ? vnet : ids[0];
    choose.value = String(vnet);
    set(say, 'Reading.');
    await load();
  })().catch((e) => { set(say, ''); fresh.failed(e.message); main.append(notice(e.message)); });
  const timer = setInterval(() => { if (!at && vnet && picture && !document.hidden) load(); }, pollMs);
  const off = at ? () => {} : reader.onChange(() => { if (picture) load(); }, ['nic', 'network', 'server']);
  return () => { left = true; off(); clearInterval(timer); map.leave(); fresh.leave(); };
}

const many = (n, what) => `${number(n)} ${what}${n === 1 ? '' : 's'}`;

function linkText(n) {
  const texts = linkStates.filter((s) => n.links[s]).map((s) => `${number(n.links[s])} ${words[s]}`);
  return (texts.join(', ') || '–') + (n.listed === false ? ' (at least)' : '');
}

// groupsOf parts the nodes. Groups that are too many stand together as one.
function groupsOf(list, by) {
  if (!list.length) return [];
  if (by === 'nothing') return [{ title: '', nodes: sorted(list) }];
  const key = { state: (n) => n.state, zone: (n) => n.datacenter || 'no datacenter', name: prefixOf }[by];
  const parts = [...Map.groupBy(list, key)];
  if (by === 'state') parts.sort((a, b) => states.indexOf(a[0]) - states.indexOf(b[0]));
  else parts.sort((a, b) => b[1].length - a[1].length || a[0].localeCompare(b[0], 'en', { numeric: true }));
  const rest = parts.splice(mostGroups - 1);
  if (rest.length > 1) parts.push([`${rest.length} other groups`, rest.flatMap(([, nodes]) => nodes)]); else parts.push(...rest);
  return parts.map(([title, nodes]) => ({ title: by === 'state' ? words[title] : title, nodes: sorted(nodes) }));
}

const sorted = (list) => [...list].sort((a, b) => (a.hostname || a.cn_uuid).localeCompare(b.hostname || b.cn_uuid, 'en', { numeric: true }));
// prefixOf is the host name without its last part, or without its number: rack7-cn12 is of
// rack7, cn12 of cn.
function prefixOf(n) {
  const first = (n.hostname || n.cn_uuid).split('.')[0], end = Math.max(first.lastIndexOf('-'), first.lastIndexOf('_'));
  return (end > 0 ? first.slice(0, end) : first.replace(/\d+$/, '')) || 'only a number';
}

async function all(reader, path, query, at, most) {
  const found = [];
  while (found.length < most) {
    const some = await reader.get(path, { ...query, limit: page, offset: found.length }, at);
    found.push(...some);
    if (some.length < page) break;
  }
  return found;
}

// past is a vnet at a seq: how far kernels were then is not recorded.
async function past(reader, at, vnet) {
  const networks = await all(reader, '/networks', { vnet_id: vnet, fabric: 'true' }, at, page);
  const found = await all(reader, '/nics', { vnet_id: vnet }, at, mostNICs);
  const placed = Map.groupBy(found.filter((n) => n.cn_uuid), (n) => n.cn_uuid);
  const names = new Names(reader, at);
  await names.learn('server', [...placed.keys()]);
  const none = { programmed: 0, behind: 0, failing: 0, idle: 0, unknown: 0 };
  const cns = [...placed].map(([uuid, nics]) => ({
    cn_uuid: uuid, hostname: names.of('server', uuid), state: 'unknown', why: 'what kernels had then is not recorded', nics: nics.length, links: { ...none, unknown: nics.length }, lag_ms: 0, listed: true,
  }));
  const count = Map.groupBy(found, (n) => n.network_uuid);
  return {
    vnet_id: vnet, networks: networks.map((n) => ({ ...n, nics: (count.get(n.uuid) || []).length })), networks_total: networks.length, nics: found.length,
    unplaced: found.length - cns.reduce((sum, c) => sum + c.nics, 0), links: { ...none, unknown: found.length }, cns, cns_total: cns.length, states: { unknown: cns.length },
  };
}

// traceForm asks the server for the way between two NICs, and shows it hop by hop.
function traceForm(reader, at, query) {
  const input = (name, placeholder) => el('input', { name, required: true, spellcheck: 'false', autocomplete: 'off', placeholder });
  const from = input('from', 'VM, alias or MAC'), to = input('to', 'VM, alias, MAC or IP');
  const kernels = el('input', { type: 'checkbox', name: 'kernels', checked: !at, disabled: Boolean(at) });
  const go = el('button', {}, 'Trace');
  const answer = el('div', { class: 'answer', 'aria-live': 'polite' });
  from.value = query.get('from') || '';
  to.value = query.get('to') || '';
  const ask = async (e) => {
    if (e) e.preventDefault();
    const ends = { from: from.value.trim(), to: to.value.trim() };
    go.disabled = true;
    clear(answer).append(el('p', { class: 'quiet' }, kernels.checked ? 'Asking both compute nodes what their kernels have.' : 'Reading the log.'));
    try {
      const t = await reader.get('/trace', kernels.checked ? { ...ends, kernels: 'true', watch_ms: 500 } : ends, at);
      clear(answer).append(el('p', { class: `verdict ${t.verdict}` }, t.summary), pathOf(t));
      const stop = answer.querySelector('.stop');
      if (e && stop) stop.scrollIntoView({ block: 'center' });
    } catch (err) {
      clear(answer).append(notice(err.message));
    }
    go.disabled = false;
  };
  const words = () => ['trace', from.value.trim() || 'FROM', to.value.trim() || 'TO', ...(at ? ['--at', String(at)] : kernels.checked ? [] : ['--no-kernels'])];
  const node = el('section', { class: 'card', 'aria-label': 'Trace' }, el('div', { class: 'viewhead' }, el('h3', {}, 'Where does traffic go, and where does it stop?'), copyCommand(words)),
    el('form', { class: 'filters', onsubmit: ask }, field('From', from), field('To', to), el('label', { class: 'check' }, kernels, ' ask the kernels'), go), answer);
  if (from.value && to.value) ask();
  return { node, fill(where, mac) { (where === 'from' ? from : to).value = mac; if (from.value && to.value) ask(); else (where === 'from' ? to : from).focus(); } };
}
