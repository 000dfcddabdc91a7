// The way of a trace, hop by hop, with what was found at each, and where it stops.

import { el, value } from './dom.js';
import { named } from './parts.js';

// Where on the way a finding stands, by the beginning of its code. Those of a place that
// both ends have stand at the end that they are of.
const places = [
  [/^(from|to)-|^vm-|^no-nic$|^nic-|^not-a-vm$|^vmm-|^network-unknown$/, 'vm'],
  [/^kernel-(link|mac|host-end|tap|address|mtu|rules|drops|dropped|lost|security)/, 'port'],
  [/^kernel-bridge/, 'port'],
  [/^kernel-(vxlan|neighbour|forward)|^entry-absent$/, 'entries'],
  [/^kernel-(unknown|part|not-asked|counters)|^cn-|^no-cn$/, 'cn'],
  [/^no-underlay$|^underlay-|^kernel-(peer|underlay)/, 'underlay'],
  [/^other-vnet$|gateway|^rout|^not-a-fabric$|^mtu-differs$/, 'network'],
];

// hopsOf lists the hops of a trace, each {key, title, lines, findings}.
export function hopsOf(t) {
  const { from, to } = t;
  const apart = from.cn_uuid && to.cn_uuid && from.cn_uuid !== to.cn_uuid;
  const hops = [vmHop('from', from), portHop('from', from, t), cnHop('from', from, t)];
  if (from.network_uuid !== to.network_uuid) hops.push({ key: 'network', title: 'Between two networks', lines: [`${value(from.network)} and ${value(to.network)}`] });
  if (apart || !to.cn_uuid) {
    hops.push({ key: 'underlay', title: 'Underlay', lines: [`${value(from.underlay_ip)} to ${value(to.underlay_ip)}`] });
    hops.push(cnHop('to', to, t));
  }
  hops.push(portHop('to', to, t), vmHop('to', to));
  for (const h of hops) h.findings = [];
  const rest = { key: 'other', title: 'Not of one place', lines: [], findings: [] };
  for (const f of t.findings || []) (hops.find((h) => h.key === placeOf(f, t, hops)) || rest).findings.push(f);
  if (rest.findings.length) hops.push(rest);
  return hops;
}

// placeOf is the key of the hop at which a finding stands.
function placeOf(f, t, hops) {
  const place = (places.find(([code]) => code.test(f.code)) || [])[1];
  if (!place) return 'other';
  const has = (key) => hops.some((h) => h.key === key);
  if (place === 'network' || place === 'underlay') return has(place) ? place : 'from-cn';
  const end = endOf(f, t);
  const key = `${end}-${place === 'entries' ? 'cn' : place}`;
  return has(key) ? key : `from-${place === 'entries' ? 'cn' : place}`;
}

// endOf is the end that a finding is of: by its code, its compute node, what its text names.
function endOf(f, t) {
  if (/^(from|to)-/.test(f.code)) return f.code.split('-')[0];
  const apart = t.from.cn_uuid !== t.to.cn_uuid;
  if (apart && f.cn_uuid) return f.cn_uuid === t.to.cn_uuid ? 'to' : 'from';
  const names = (e) => [e.mac, e.vm_uuid, e.alias, e.asked].filter((n) => n && f.text.includes(n));
  const a = names(t.from), b = names(t.to);
  if (b.length && !a.length) return 'to';
  if (a.length && b.length) { // both are named: the first is the one that it is of
    const first = (list) => Math.min(...list.map((n) => f.text.indexOf(n)));
    return first(b) < first(a) ? 'to' : 'from';
  }
  return 'from';
}

function vmHop(end, e) {
  const lines = [[e.ip, e.network].filter(Boolean).join(' on ')];
  if (e.mac) lines.push(e.mac);
  if (e.state) lines.push(`the VM is ${e.state}`);
  return { key: `${end}-vm`, title: e.vm_uuid ? named('vm', e.vm_uuid, e.alias) : value(e.asked), kind: end === 'from' ? 'From' : 'To', lines: lines.filter(Boolean) };
}

function kernelOf(e, t) { return (t.kernels || []).find((k) => k.cn_uuid === e.cn_uuid && k.mac === e.mac); }

function portHop(end, e, t) {
  const kernel = kernelOf(e, t), view = kernel && kernel.view;
  const lines = [];
  if (!view) lines.push(kernel && kernel.unknown ? `not known: ${kernel.unknown}` : 'the kernel was not asked');
  else {
    for (const l of (view.links || []).filter((one) => one.role !== 'vxlan')) lines.push(`${l.role} ${l.name}, ${l.up ? 'up' : 'DOWN'}, MTU ${l.mtu}, ${l.rx_packets} in, ${l.tx_packets} out`);
    lines.push(`port security ${view.port_security.mode}`);
    for (const m of kernel.moved || []) lines.push(`${m.what} +${m.rose}`);
  }
  return { key: `${end}-port`, title: 'Port in the kernel', lines };
}

function cnHop(end, e, t) {
  const kernel = kernelOf(e, t), view = kernel && kernel.view;
  const lines = [];
  const vxlan = view && (view.links || []).find((l) => l.role === 'vxlan');
  if (vxlan) lines.push(`${vxlan.name}, ${vxlan.up ? 'up' : 'DOWN'}, vnet ${value(e.vnet)}`);
  if (view && view.neighbour) lines.push(`neighbour ${value(view.neighbour.mac)}, ${view.neighbour.state}`);
  if (view && view.forward) lines.push(`forwards to ${view.forward.vtep}`);
  for (const entry of (t.entries || []).filter((one) => one.cn_uuid === e.cn_uuid)) {
    lines.push(`${entry.what}: ${!entry.wanted ? 'the log does not give it' : entry.programmed === undefined ? 'not known' : entry.programmed ? 'programmed' : 'not programmed yet'}`);
  }
  if (e.underlay_ip) lines.push(`underlay ${e.underlay_ip}`);
  return { key: `${end}-cn`, title: e.cn_uuid ? named('cn', e.cn_uuid, e.hostname) : 'No compute node', kind: 'Compute node', lines: [...new Set(lines)] };
}

const marks = { fault: '✗', doubt: '?', note: 'i' };

// pathOf is the way as a list. The first fault ends it: what comes after is not reached.
export function pathOf(t) {
  const hops = hopsOf(t);
  const stop = hops.findIndex((h) => h.findings.some((f) => f.level === 'fault'));
  return el('ol', { class: 'way', 'aria-label': 'The way, hop by hop' }, hops.map((h, i) => {
    const worst = ['fault', 'doubt', 'note'].find((level) => h.findings.some((f) => f.level === level)) || 'fine';
    const reached = stop < 0 || i <= stop || h.key === 'other';
    return el('li', { class: `hop ${worst}${reached ? '' : ' beyond'}${i === stop ? ' stop' : ''}`, 'data-hop': h.key },
      el('h4', {}, h.kind ? el('small', {}, `${h.kind} `) : null, h.title),
      i === stop ? el('p', { class: 'stops' }, 'It stops here.') : reached ? null : el('p', { class: 'quiet' }, 'Not reached.'),
      h.lines.map((line) => el('p', { class: 'line' }, line)),
      h.findings.length ? el('ul', {}, h.findings.map((f) => el('li', { class: f.level }, el('span', { class: 'mark-of', 'aria-hidden': 'true' }, marks[f.level] || ''), ` ${f.text} `, f.remedy ? el('em', {}, f.remedy) : null, ' ', el('code', {}, f.code)))) : null);
  }));
}

