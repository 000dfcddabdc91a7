// The page of one compute node (CN): what the servers know of it, and on demand what it
// says of itself. What it says may be wrong, and stands apart from what the log has.

import { clear, duration, el, field, notice, number, table, value } from './dom.js';
import { absolute, freshness, head, named, when } from './parts.js';
import { Names } from './names.js';
import { AskedTable } from './pages.js';

const pollMs = 2000;
const endsSoonMs = 30 * 86400e3; // a certificate that ends within this time is marked
const certificatePage = 1000;

export function enterNode(main, { reader, at, parts }) {
  const asked = parts[0];
  const names = new Names(reader, at);
  const fresh = freshness(reader, at, () => read());
  let left = false, uuid = '', last = null;
  const title = el('span', {}, 'Compute node');
  const top = head('', fresh, () => (at ? ['log', 'state', '--at', String(at), '--cn', uuid || asked] : ['cn', 'status', uuid || asked, ...(report.dataset.asked ? ['--ask'] : [])]));
  top.querySelector('h2').append(title);
  const state = el('div', { class: 'nodegrid' });
  const report = el('section', { class: 'card', 'aria-label': 'What the node says of itself', 'aria-live': 'polite' });
  const kernel = el('section', { class: 'card', 'aria-label': 'What its kernel has of a NIC', 'aria-live': 'polite', hidden: true });
  const lists = el('div', {});
  main.append(top, at ? notice(`Sessions and kernels of the past are not recorded: below is what the log had at #${at}.`) : '', state, at ? '' : report, kernel, lists);
  if (!at) {
    report.append(el('div', { class: 'viewhead' }, el('h3', {}, 'What it says of itself'), el('button', { type: 'button', name: 'ask', onclick: () => ask() }, 'Ask the node')),
      el('p', { class: 'quiet' }, 'Its kernel, ports and their rules, drops, certificate and version: asked by its session, and answered by its agent.'));
  }

  const waitsOf = (mac) => ((last && last.session && last.session.waits) || []).find((w) => w.nic === mac);
  const nics = new AskedTable('NICs', ['NIC', 'Address', 'Network', 'State in the log', 'In its kernel', ''], async (offset, limit) => {
    const list = await reader.get('/nics', { cn_uuid: uuid, limit, offset }, at);
    await Promise.all([names.learn('network', list.map((n) => n.network_uuid)), names.learn('vm', list.filter((n) => n.belongs_to_type === 'zone').map((n) => n.belongs_to_uuid))]);
    return list.map((n) => ({ ...n, name: names.of('vm', n.belongs_to_uuid), net: names.of('network', n.network_uuid), wait: waitsOf(n.mac) }));
  }, (n) => [named('nic', n.mac, n.name ? `${n.name} ${n.mac}` : n.belongs_to_type === 'server' ? `its own ${n.mac}` : n.mac), value(n.ip), n.network_uuid ? named('network', n.network_uuid, n.net) : '–', value(n.state), kernelState(n, last),
    at || n.belongs_to_type !== 'zone' ? '' : el('button', { type: 'button', class: 'small', 'aria-label': `Ask the kernel about ${n.mac}`, onclick: () => askNIC(n.mac) }, 'Ask the kernel')]);
  const vms = new AskedTable('VMs', ['VM', 'State', 'Brand'], (offset, limit) => reader.get('/vms', { server_uuid: uuid, limit, offset }, at), (v) => [named('vm', v.uuid, v.alias), value(v.state), value(v.brand)]);
  const tasks = new AskedTable('Tasks', ['Task', 'Status', 'Created', 'Why it failed'], async (offset, limit) => (await tasksOf(reader, uuid, at, offset, limit)), ({ id, object: o }) => [named('task', id, o.task), el('span', { class: `badge ${{ failure: 'bad', complete: 'good' }[o.status] || 'warn'}` }, o.status), when(o.created), value(o.failure)], 20);
  const certificates = el('div', {});
  const entries = entriesOf(reader, at, names, () => uuid);

  async function read() {
    try {
      if (at) {
        const o = await reader.get(`/servers/${encodeURIComponent(asked)}`, null, at);
        begin(o.uuid, o.hostname);
        drawPast(state, o);
        fresh.got(false);
        return;
      }
      const got = await reader.get(`/cns/${encodeURIComponent(asked)}/status`);
      if (left) return;
      last = got;
      begin(got.cn_uuid, got.hostname);
      draw(state, got);
      nics.read().catch(() => {}); // their state in the kernel follows the session
      fresh.got(true);
    } catch (e) {
      fresh.failed(e.message);
      if (!uuid) clear(state).append(notice(e.message));
    }
  }

  // begin fills the lists, once the node is known.
  function begin(id, name) {
    clear(title).append(named('cn', id, name));
    if (uuid) return;
    uuid = id;
    lists.append(nics.node, vms.node, entries.node, tasks.node, certificates, el('p', {}, el('a', { href: `#/object/server/${uuid}` }, 'Its object in the log, with its history'), ', ', el('a', { href: `#/log?cn=${uuid}` }, 'the entries that concern it')));
    const failed = (what) => (e) => lists.append(notice(`${what}: ${e.message}`));
    nics.read(0).catch(failed('NICs'));
    vms.read(0).catch(failed('VMs'));
    tasks.read(0).catch(failed('Tasks'));
    entries.begin().catch(failed('Entries'));
    if (!at) readCertificates(reader, uuid, certificates).catch(failed('Certificates'));
  }

  async function ask() {
    report.dataset.asked = '1';
    const button = report.querySelector('button[name=ask]');
    button.disabled = true;
    while (report.children.length > 1) report.lastChild.remove();
    try {
      const got = await reader.get(`/cns/${uuid || encodeURIComponent(asked)}/status`, { ask: 'true' });
      report.append(got.report ? reportOf(got.report) : notice(got.unknown || 'It says nothing.'));
    } catch (e) {
      report.append(notice(e.message));
    }
    button.disabled = false;
    button.textContent = 'Ask again';
  }

  async function askNIC(mac) {
    kernel.hidden = false;
    clear(kernel).append(el('p', { class: 'quiet' }, `Asking what its kernel has of ${mac}.`));
    kernel.scrollIntoView({ block: 'nearest' });
    try {
      const got = await reader.get(`/cns/${uuid}/status`, { nic: mac });
      clear(kernel).append(el('h3', {}, `What its kernel has of ${mac}, as of ${absolute(new Date().toISOString())}`), got.kernel ? kernelOf(got.kernel) : notice(got.unknown || 'It says nothing.'));
    } catch (e) {
      clear(kernel).append(notice(e.message));
    }
  }

  read();
  const timer = setInterval(() => { if (!at && !document.hidden) read(); }, pollMs);
  const off = at ? () => {} : reader.onChange(() => { if (uuid) { vms.read().catch(() => {}); tasks.read().catch(() => {}); } }, ['vm', 'nic', 'task']);
  return () => { left = true; off(); clearInterval(timer); fresh.leave(); };
}

const mostVNets = 1000; // that one can choose from

// entriesOf lists, for one vnet of the node at a time, what its kernel is to have by the log
// to reach the NICs on other nodes: a neighbour entry and a forwarding entry for each. On
// large vnets the kernel has those that it asked for.
function entriesOf(reader, at, names, cn) {
  const choose = el('select', { name: 'vnet' });
  const problem = el('div', {});
  const ends = new AskedTable('What its kernel is to have for the NICs of the vnet', ['Address', 'NIC', 'On', 'Its underlay address', 'In its kernel'], async (offset, limit) => {
    const vnet = Number(choose.value);
    const [list, picture] = await Promise.all([reader.get('/nics', { vnet_id: vnet, limit, offset }, at), at ? null : reader.get(`/vnets/${vnet}`, { limit: 2000 })]);
    const on = list.map((n) => n.cn_uuid).filter(Boolean);
    await Promise.all([names.learn('server', on), names.learn('vm', list.filter((n) => n.belongs_to_type === 'zone').map((n) => n.belongs_to_uuid))]);
    const nodes = new Map((picture ? picture.cns : []).map((n) => [n.cn_uuid, n]));
    return list.map((n) => ({ ...n, vm: names.of('vm', n.belongs_to_uuid), host: names.of('server', n.cn_uuid), underlay: (nodes.get(n.cn_uuid) || {}).underlay_ip }));
  }, (n) => [value(n.ip), named('nic', n.mac, n.vm ? `${n.vm} ${n.mac}` : n.mac), n.cn_uuid ? named('cn', n.cn_uuid, n.host) : 'no node', at ? 'not recorded' : value(n.underlay),
    n.cn_uuid === cn() ? 'its own link' : n.cn_uuid && (at || n.underlay) ? 'a neighbour entry and a forwarding entry' : 'none: it is not reached']);
  const node = el('section', { 'aria-label': 'Entries of its kernel' }, problem);
  choose.addEventListener('change', () => ends.read(0).catch((e) => clear(problem).append(notice(e.message))));
  return {
    node,
    async begin() {
      const own = await reader.get('/nics', { cn_uuid: cn(), belongs_to_type: 'zone', limit: mostVNets }, at);
      const ids = [...new Set(own.map((n) => n.network_uuid).filter(Boolean))];
      const networks = await Promise.all(ids.map((id) => reader.get(`/networks/${id}`, null, at).catch(() => null)));
      const vnets = [...Map.groupBy(networks.filter((n) => n && n.fabric), (n) => n.vnet_id)].sort((a, b) => a[0] - b[0]);
      if (!vnets.length) return;
      choose.append(...vnets.map(([id, list]) => el('option', { value: String(id) }, `${id}: ${list.map((n) => n.name).join(', ').slice(0, 60)}`)));
      node.append(el('div', { class: 'filters' }, field('Entries of vnet', choose)), ends.node);
      await ends.read(0);
    },
  };
}

// kernelState is a NIC's link as the servers know it of the node's session.
function kernelState(n, status) {
  if (n.belongs_to_type !== 'zone') return 'not a link of Rutter';
  const s = status && status.session;
  const badge = (grade, text, why) => el('span', { class: `badge ${grade}`, title: why }, text);
  if (!s || s.gone) return badge('unknown', 'not known');
  if (n.wait) return n.wait.idle ? badge('', 'VM not to run', n.wait.object) : badge('failing', 'failing', n.wait.object);
  return s.lag_entries > 0 && s.lag_ms > 1000 ? badge('behind', 'behind') : badge('programmed', 'programmed');
}

async function tasksOf(reader, cn, at, offset, limit) {
  const all = (await reader.state({ kind: 'task', cn }, at)).filter((r) => r.object.server_uuid === cn);
  all.sort((a, b) => (a.object.created < b.object.created ? 1 : -1));
  return all.slice(offset, offset + limit);
}

async function readCertificates(reader, cn, place) {
  const own = [];
  for (let offset = 0; ; offset += certificatePage) {
    const some = await reader.state({ kind: 'certificate', limit: certificatePage, offset });
    own.push(...some.filter((r) => r.object.identity === `cn:${cn}`));
    if (some.length < certificatePage) break;
  }
  if (!own.length) { place.append(el('p', { class: 'quiet' }, 'The log has no certificate that was issued to it.')); return; }
  own.sort((a, b) => (a.object.not_after < b.object.not_after ? 1 : -1));
  place.append(table(`Certificates that were issued to it, ${own.length}`, ['Serial', 'Issued', 'Ends'], own.map((r) => [r.id, when(r.object.not_before), ends(r.object.not_after)])));
}

function ends(text) {
  const left = Date.parse(text) - Date.now();
  return el('span', {}, when(text), ' ', left < endsSoonMs ? el('span', { class: `badge ${left < 0 ? 'bad' : 'warn'}` }, left < 0 ? 'ended' : 'soon') : null);
}

const card = (title, badge, rows, ...more) => el('section', { class: 'card' }, el('h3', {}, title, ' ', badge),
  el('dl', {}, rows.filter(([, v]) => v !== undefined && v !== '').map(([k, v]) => [el('dt', {}, k), el('dd', {}, v)])), more);
const lines = (title, list) => (list && list.length ? [el('h4', {}, title), el('ul', { class: 'lines' }, list.map((l) => el('li', {}, l)))] : null);
const badgeOf = (grade, text) => el('span', { class: `badge ${grade}` }, text);
const seq = (n) => (n ? el('a', { href: `#/log?seq=${n}` }, `#${number(n)}`) : 'nothing yet');

function drawPast(place, o) {
  clear(place).append(card('In the log', '', ['hostname', 'status', 'datacenter', 'setup', 'current_platform', 'admin_ip'].filter((k) => k in o).map((k) => [k, value(o[k])])));
}

// draw shows a status; a part that did not change costs no layout.
function draw(place, status) {
  const text = JSON.stringify({ ...status, seq: 0, session: status.session && { ...status.session, heard: '', heard_ms: 0, sent: 0 } });
  if (place.dataset.before === text) return;
  place.dataset.before = text;
  const s = status.session;
  clear(place);
  if (!s) { place.append(card('Session', badgeOf('unknown', 'none'), [], el('p', {}, 'No server has had a session of it since the leader was elected: nothing is known of its kernel. See the agent on the node: rutter agent status.'))); return; }
  const late = s.lag_ms > 5000;
  place.append(
    card('Session', s.gone ? badgeOf('bad', 'ended') : badgeOf('good', 'connected'), [['server', s.server], ['since', s.connected_since ? when(s.connected_since) : ''], ['incarnation', `${s.incarnation}, number ${s.session}`], ['address', s.remote],
      ['heard', s.heard ? when(s.heard) : s.heard_ms >= 0 ? `${duration(s.heard_ms)} ago` : ''], ['resets', s.resets ? `${s.resets}, the last: ${value(s.last_reset)}` : 'none']], s.trouble ? notice(s.trouble) : ''),
    card('How far it is', s.gone ? badgeOf('unknown', 'not known') : late ? badgeOf('bad', 'late') : s.lag_entries ? badgeOf('warn', 'on its way') : badgeOf('good', 'up to date'),
      [['applied', seq(s.applied)], ['programmed', seq(s.programmed)], ['but for what waits', s.reached > s.programmed ? seq(s.reached) : ''], ['behind', s.lag_entries ? `${number(s.lag_entries)} entries, ${duration(s.lag_ms)}` : 'nothing'],
        ['digest', s.digest_ok ? el('span', {}, 'equal at ', seq(s.digest_checked)) : s.digest_mismatches ? `${s.digest_mismatches} scopes differed` : 'not compared']]),
    card('Its kernel', s.failing ? badgeOf('bad', `${s.failing} failing`) : badgeOf('good', 'nothing fails'), [['links', s.links ? number(s.links) : ''], ['neighbour entries', s.neighbours ? number(s.neighbours) : ''], ['forwarding entries', s.fdb ? number(s.fdb) : ''],
      ['waiting', `${number(s.waiting)}, and ${number(s.idle)} of VMs that are not to run`], ['put right', number(s.healed)]],
    lines('Waiting', (s.waits || []).map((w) => w.object)), lines('Drift: what was put right last', s.drift ? s.drift.split('\n') : [])));
  if (s.hold) {
    place.append(card('It holds back', badgeOf('bad', 'needs you'), [['would take away', `${s.hold.going} of ${s.hold.links} links`], ['since', s.hold.since ? when(s.hold.since) : '']],
      lines('Links that would go', s.hold.names), el('p', {}, 'To let it: ', el('code', {}, `rutter cn accept ${status.cn_uuid}`))));
  }
}

const dropsText = (drops) => Object.entries(drops || {}).filter(([, n]) => n > 0).map(([reason, n]) => `${reason} ${number(n)}`).join(', ') || 'none';

// reportOf is what a node says of itself.
function reportOf(r) {
  const k = r.kernel;
  const byReason = {};
  for (const p of r.ports) for (const [reason, n] of Object.entries(p.drops)) byReason[reason] = (byReason[reason] || 0) + n;
  return el('div', {},
    el('p', { class: 'quiet' }, 'As of ', when(r.at), ' by the clock of the node.'),
    r.trouble.map((t) => notice(t)),
    el('div', { class: 'nodegrid' },
      card('Agent', badgeOf('', r.state), [['version', value(r.version)], ['Go', r.go_version], ['feature version', r.feature_version], ['follows', value(r.server)], ['cursor', r.cursor], ['head it knows', seq(r.head)], ['last failure', r.error],
        ['certificate ends', r.certificate ? ends(r.certificate.not_after) : 'it uses none']]),
      card('Kernel', k.matched ? badgeOf('good', 'matches the log') : badgeOf('warn', 'does not match'), [['at', seq(k.programmed)], ['last pass', k.at ? el('span', {}, when(k.at), `, ${duration(k.took_ns / 1e6)}`) : 'none'],
        ['entry to kernel', k.delay_p99_ns ? `${(k.delay_p50_ns / 1e6).toFixed(1)} ms, 99 of 100 within ${(k.delay_p99_ns / 1e6).toFixed(1)} ms` : ''], ['vnets', number(k.vnets)], ['links', number(k.links)], ['neighbour entries', number(k.neighbours)], ['forwarding entries', number(k.fdb)],
        ['on demand', k.on_demand_vnets ? `${k.on_demand_vnets} vnets, ${number(k.on_demand_entries)} entries` : ''], ['failing', number(k.failing)], ['blocked by others', number(k.blocked)], ['put right', `${number(k.healed)}${k.healed ? ` (${dropsText(k.healed_by)})` : ''}`]],
      lines('Failures', k.failures), lines('Blocked by links that are not of Rutter', k.conflicts), lines('Drift', k.drift), lines('Objects that cannot be programmed', k.problems), lines('Waiting', k.waits)),
      card('Port security', badgeOf(r.port_security === 'enforced' ? 'good' : 'warn', r.port_security), [['why', r.port_security_why], ['ports', number(r.ports_total)], ['dropped at ports', dropsText(byReason)], ['dropped at the underlay', dropsText(r.underlay_drops)]])),
    r.ports.length ? table(r.ports_total > r.ports.length ? `Ports, the ${r.ports.length} of ${number(r.ports_total)} that dropped most` : `Ports and their rules, ${number(r.ports.length)}`, ['NIC', 'Host end', 'Lets through', 'Dropped'],
      r.ports.map((p) => [named('nic', p.mac, p.alias ? `${p.alias} ${p.mac}` : p.mac), p.host_end, [...p.addresses, ...p.relaxed].join(', ') || '–', dropsText(p.drops)])) : '');
}

// kernelOf is what a kernel has of one NIC.
function kernelOf(v) {
  return el('div', {},
    table('Links', ['Link', 'Role', 'Kind', 'MAC', 'MTU', 'Up', 'In', 'Out', 'Lost'], v.links.map((l) => [l.name, l.role, l.kind, l.mac, String(l.mtu), l.up ? 'yes' : 'NO', number(l.rx_packets), number(l.tx_packets), number(l.rx_errors + l.tx_errors + l.rx_dropped + l.tx_dropped)])),
    el('dl', {}, [['addresses', v.addresses.join(', ') || 'none'], ['port security', `${v.port_security.mode}${v.port_security.why ? `: ${v.port_security.why}` : ''}`],
      ['rules', v.port_security.rules ? `${v.port_security.rules.port}: ${[v.port_security.rules.mac, ...(v.port_security.rules.addresses || []), ...(v.port_security.rules.relaxed || [])].join(', ')}` : 'none'],
      ['dropped at the port', dropsText(v.drops)], ['entries', v.on_demand ? 'programmed when the kernel asks for them' : 'programmed ahead']].map(([k, t]) => [el('dt', {}, k), el('dd', {}, t)])),
    lines('Could not be read', v.unknown));
}
