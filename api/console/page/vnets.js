// Vnets: what lies on one, drawn, and who reaches whom.

import { clear, el, field, notice, number, objectLink, set, svg, table, value } from './dom.js';

const mostNetworks = 24; // drawn; the table has the others
const mostCNs = 48;
const page = 1000;
const mostNICs = 20000; // read for one picture
const nicRows = 200;

export function enter(main, { reader, at, parts }) {
  const choose = el('select', { name: 'vnet' });
  const state = el('p', { class: 'quiet', role: 'status' });
  const place = el('div', {});
  main.append(el('h2', {}, at ? `Vnets at #${number(at)}` : 'Vnets'), el('div', { class: 'filters' }, field('Vnet', choose)), state, place);
  let left = false;
  choose.addEventListener('change', () => { location.hash = `#/vnets/${choose.value}`; });
  (async () => {
    const networks = await all(reader, '/networks', { fabric: 'true' }, at, page);
    const byVNet = Map.groupBy(networks, (n) => n.vnet_id);
    const ids = [...byVNet.keys()].sort((a, b) => a - b);
    if (!ids.length) { set(state, 'The log has no fabric network.'); return; }
    choose.append(...ids.map((v) => el('option', { value: String(v) }, `${v}: ${byVNet.get(v).map((n) => n.name).join(', ').slice(0, 60)}`)));
    const vnet = byVNet.has(Number(parts[0])) ? Number(parts[0]) : ids[0];
    choose.value = String(vnet);
    set(state, 'reading …');
    const picture = await read(reader, at, vnet, byVNet.get(vnet));
    if (left) return;
    set(state, `${number(picture.networks.length)} networks, ${number(picture.nics.length)} NICs on ${number(picture.cns.length)} compute nodes`);
    place.append(traceForm(reader, at), draw(picture), reach(picture), nics(picture));
  })().catch((e) => place.append(notice(e.message)));
  return () => { left = true; };
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

async function read(reader, at, vnet, networks) {
  const found = await all(reader, '/nics', { vnet_id: vnet }, at, mostNICs);
  const byCN = Map.groupBy(found, (n) => n.cn_uuid || '');
  const cns = await Promise.all([...byCN.keys()].sort().slice(0, 4 * mostCNs).map(async (uuid) => {
    if (!uuid) return { uuid: '', hostname: 'on no compute node', nics: byCN.get(uuid), underlay: '' };
    const [server, under] = await Promise.all([
      reader.get(`/servers/${uuid}`, null, at).catch(() => ({})),
      reader.get('/nics', { belongs_to_uuid: uuid, underlay: 'true' }, at),
    ]);
    return { uuid, hostname: server.hostname || uuid.slice(0, 8), status: server.status || 'not in the log', nics: byCN.get(uuid), underlay: (under.find((n) => n.ip) || {}).ip || '' };
  }));
  cns.sort((a, b) => a.hostname.localeCompare(b.hostname, 'en', { numeric: true }));
  return { vnet, networks, nics: found, cns };
}

const boxHeight = 54, gap = 14, width = 720, boxWidth = 230;

// draw: networks to the left, compute nodes to the right, a line where a network
// has NICs on a node, the thicker the more.
function draw({ vnet, networks, cns }) {
  const nets = networks.slice(0, mostNetworks), nodes = cns.slice(0, mostCNs);
  const height = Math.max(nets.length, nodes.length) * (boxHeight + gap) + gap;
  const place = (list) => { const first = (height - list.length * (boxHeight + gap) + gap) / 2; return list.map((_, i) => first + i * (boxHeight + gap)); };
  const left = place(nets), right = place(nodes);
  const lines = [], boxes = [];
  nets.forEach((n, i) => {
    boxes.push(box(0, left[i], n.name, `${n.subnet}${n.vlan_id ? `, VLAN ${n.vlan_id}` : ''}`, 'net', `#/object/network/${n.uuid}`));
    nodes.forEach((c, j) => {
      const count = c.nics.filter((x) => x.network_uuid === n.uuid).length;
      if (!count) return;
      const y1 = left[i] + boxHeight / 2, y2 = right[j] + boxHeight / 2, x1 = boxWidth, x2 = width - boxWidth, middle = (x1 + x2) / 2;
      lines.push(svg('path', { class: c.underlay ? 'wire' : 'wire cut', 'stroke-width': String(1 + Math.min(5, Math.log2(count))), d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` },
        svg('title', {}, `${n.name}: ${count} NICs on ${c.hostname}`)));
    });
  });
  nodes.forEach((c, j) => boxes.push(box(width - boxWidth, right[j], c.hostname, `${number(c.nics.length)} NICs, ${c.underlay || 'no underlay address'}`, c.underlay ? 'node' : 'node cut', c.uuid ? `#/object/server/${c.uuid}` : '')));
  const more = [];
  if (networks.length > nets.length) more.push(`${networks.length - nets.length} more networks`);
  if (cns.length > nodes.length) more.push(`${cns.length - nodes.length} more compute nodes`);
  return el('figure', { class: 'picture' },
    svg('svg', { viewBox: `-2 0 ${width + 4} ${height}`, role: 'img', 'aria-label': `Vnet ${vnet}: ${nets.map((n) => n.name).join(', ')} on ${nodes.map((c) => c.hostname).join(', ')}` }, lines, boxes),
    el('figcaption', {}, `Networks to the left, compute nodes to the right.${more.length ? ` Not drawn: ${more.join(', ')}.` : ''}`));
}

function box(x, y, title, text, name, href) {
  const cut = (s) => (s.length > 30 ? `${s.slice(0, 29)}…` : s);
  const g = svg('g', { class: `box ${name}` }, svg('rect', { x: String(x), y: String(y), width: String(boxWidth), height: String(boxHeight), rx: '8' }),
    svg('text', { x: String(x + 12), y: String(y + 23), class: 'title' }, cut(title)), svg('text', { x: String(x + 12), y: String(y + 41) }, cut(text)));
  return href ? svg('a', { href, 'aria-label': `${title}, ${text}` }, g) : g;
}

// reach says between which compute nodes packets of the vnet can go.
function reach({ cns }) {
  const nodes = cns.filter((c) => c.uuid).slice(0, mostCNs);
  if (nodes.length < 2) return '';
  const family = (c) => (!c.underlay ? '' : c.underlay.includes(':') ? '6' : '4');
  const word = (a, b) => (a === b ? ['same', 'the same node'] : !family(a) || !family(b) ? ['no', 'no underlay address'] : family(a) !== family(b) ? ['no', 'underlay addresses of two families'] : ['yes', `${a.underlay} to ${b.underlay}`]);
  const mark = { same: '·', yes: '✓', no: '✗' };
  const head = el('tr', {}, el('td', {}), nodes.map((c) => el('th', { scope: 'col' }, el('span', {}, c.hostname))));
  const rows = nodes.map((a) => el('tr', {}, el('th', { scope: 'row' }, a.hostname), nodes.map((b) => {
    const [grade, why] = word(a, b);
    return el('td', { class: `reach ${grade}`, title: `${a.hostname} to ${b.hostname}: ${why}`, 'aria-label': `${a.hostname} to ${b.hostname}: ${why}` }, mark[grade]);
  })));
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Who reaches whom' },
    el('h3', {}, 'Who reaches whom, by what the log has of their underlay'), el('table', { class: 'matrix', 'aria-label': 'Who reaches whom' }, el('thead', {}, head), el('tbody', {}, rows)));
}

function nics({ nics: found, networks, cns }) {
  const name = new Map(networks.map((n) => [n.uuid, n.name])), host = new Map(cns.map((c) => [c.uuid, c.hostname]));
  const caption = found.length > nicRows ? `NICs, the first ${nicRows} of ${number(found.length)}` : 'NICs';
  return table(caption, ['MAC', 'Address', 'Network', 'State', 'Belongs to', 'Compute node'], found.slice(0, nicRows).map((n) => [
    objectLink('nic', n.mac), value(n.ip), value(name.get(n.network_uuid)), value(n.state),
    n.belongs_to_type === 'zone' ? objectLink('vm', n.belongs_to_uuid) : value(n.belongs_to_uuid), value(host.get(n.cn_uuid))]));
}

// traceForm asks the server why one thing cannot reach another.
function traceForm(reader, at) {
  const from = el('input', { name: 'from', required: true, spellcheck: 'false', autocomplete: 'off', placeholder: 'VM, alias or MAC' });
  const to = el('input', { name: 'to', required: true, spellcheck: 'false', autocomplete: 'off', placeholder: 'VM, alias, MAC or IP' });
  const answer = el('div', { 'aria-live': 'polite' });
  const ask = async (e) => {
    e.preventDefault();
    try {
      const t = await reader.get('/trace', { from: from.value.trim(), to: to.value.trim() }, at);
      clear(answer).append(el('p', { class: `verdict ${t.verdict}` }, t.summary),
        el('ul', {}, (t.findings || []).map((f) => el('li', { class: f.level }, f.text, f.remedy ? el('em', {}, ` ${f.remedy}`) : null))));
    } catch (err) {
      clear(answer).append(notice(err.message));
    }
  };
  return el('section', { class: 'card' }, el('h3', {}, 'Why can one not reach the other?'),
    el('form', { class: 'filters', onsubmit: ask }, field('From', from), field('To', to), el('button', {}, 'Trace')), answer);
}
