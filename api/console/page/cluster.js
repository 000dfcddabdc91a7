// The cluster as this server sees it: who leads, how far everybody is, disks.

import { bytes, clear, duration, el, headOf, notice, number, table, value } from './dom.js';
import { freshness, head as viewHead, when } from './parts.js';

const placesMs = 5000; // between two questions that this server puts to each other one

export function enter(main, { reader, at }) {
  const place = el('div', {});
  const fresh = freshness(reader, 0);
  main.append(viewHead('Cluster', fresh, () => ['cluster', 'status']), at ? notice('The cluster is shown as it is now.') : '', place);
  let before = '';
  let asked = -placesMs;
  let status = null;
  let places = []; // what the servers say of themselves: zones, and how far they are
  let left = false;
  const redraw = () => {
    const now = JSON.stringify([status, places]);
    if (left || now === before) return;
    before = now;
    draw(place, status, places);
  };
  const learn = async () => {
    try { places = await reader.get('/cluster/servers'); } catch { places = []; } // the rest of the page says whether the server answers
    redraw();
  };
  const stop = reader.onCluster((s) => {
    fresh.got(true);
    status = s;
    redraw();
    if (performance.now() - asked < placesMs) return;
    asked = performance.now();
    learn();
  });
  const off = () => { left = true; stop(); };
  return () => { off(); fresh.leave(); };
}

function draw(place, s, places) {
  const d = s.detail || {};
  const head = headOf(s);
  const ns = (n) => duration((n || 0) / 1e6);
  const used = d.disk_bytes ? 1 - d.disk_free_bytes / d.disk_bytes : 0;
  clear(place);
  if (d.diverged) place.append(notice(`This server differs from the others and serves nothing: ${d.diverged}. Have it rebuilt: rutter cluster rebuild ${s.id}`));
  if (!s.leader_id) place.append(notice('No leader is known: nothing is written until a majority of the servers agrees on one.'));
  if (d.not_ready) place.append(notice(`This server is not ready: ${d.not_ready}`));
  place.append(el('div', { class: 'cards' },
    card('Leader', value(s.leader_id), [['term', number(s.term)], ['heard', d.age_ns === undefined ? '–' : `${ns(d.age_ns)} ago`]]),
    card('Head', `#${number(head)}`, [['kept from', `#${number((d.floor || 0) + 1)}`], ['on disk', `#${number(d.durable || 0)}`], ['written', when(d.time)]]),
    card('This server', `${s.id}, ${d.replica && s.state === 'Follower' ? 'replica' : s.state.toLowerCase()}`, [...(s.zone ? [['zone', s.zone]] : []), ...(d.replica ? [['behind the leader', `${ns(d.replica_lag_ns)} of ${ns(d.replica_max_lag_ns)} at most`]] : []), ['raft applied', number(s.applied)], ['raft committed', number(s.commit)], ['feature version', value(d.feature_version)]]),
    el('section', { class: 'card' }, el('h3', {}, 'Disk'),
      el('p', { class: 'big' }, d.disk_bytes ? `${bytes(d.disk_free_bytes)} free` : '–'),
      el('meter', { min: '0', max: '1', low: '0.8', high: '0.9', optimum: '0', value: String(used), 'aria-label': `${Math.round(100 * used)} % of the disk in use` }),
      list([['changes.db', bytes(d.changes_db_bytes || 0)], ['raft log', `${bytes(d.raft_log_bytes || 0)} (${value(d.raft_log)})`], ['of', bytes(d.disk_bytes || 0)]])),
    card('Writes', number(d.proposals_total || 0), [['batches', number(d.batches_total || 0)], ['queued', number(d.proposals_queued || 0)], ['refused', number(d.refused_total || 0)], ['sent on', number(d.forwarded_total || 0)], ['too many at once', number(d.overloaded_total || 0)]]),
    card('Kept', d.retention ? ns(d.retention.age_ns) : '–', d.retention ? [['entries at least', number(d.retention.events)], ['bytes at most', bytes(d.retention.bytes)]] : [])));
  const compared = new Map((d.compared || []).map((c) => [c.id, c]));
  const said = new Map(places.map((p) => [p.id, p]));
  const furthest = Math.max(0, ...places.map((p) => p.seq || 0));
  place.append(table('Servers', ['Server', 'Role', 'Zone', 'Peer address', 'Lag', 'State compared at', 'Verdict'], s.members.map((m) => {
    const c = compared.get(m.id);
    const verdict = m.id === s.id ? 'this one' : !c ? 'not compared yet' : c.error ? `not compared: ${c.error}` : c.differs ? 'DIFFERS' : c.raft_index ? 'equal' : 'not compared yet';
    const role = m.leader || m.id === s.leader_id ? 'leader' : m.voter ? 'voter' : 'replica (no vote)';
    const p = said.get(m.id);
    return [m.id, role, (p && p.zone) || '–', m.address, p ? lagOf(p, furthest, ns) : '–', m.id === s.id ? `#${number(head)}` : c && c.seq ? `#${number(c.seq)}` : '–', verdict];
  })));
}

// lagOf says how far a server is behind the one that has most entries, and a replica how long.
function lagOf(p, furthest, ns) {
  if (!p.seq) return p.problem ? `no answer: ${p.problem}` : '–';
  const entries = `${number(furthest - p.seq)} entries`;
  return p.voter ? entries : `${entries}, ${ns(p.replica_lag_ns)}`;
}

function card(title, big, rows) {
  return el('section', { class: 'card' }, el('h3', {}, title), el('p', { class: 'big' }, big), list(rows));
}

const list = (rows) => el('dl', {}, rows.map(([k, v]) => [el('dt', {}, k), el('dd', {}, v)]));
