// The front page: what is wrong now, what changed in the last hour, and how it went.

import { duration, el, notice, number, table } from './dom.js';
import { freshness, head, named, replaceAll, spark, when } from './parts.js';

const readMs = 2000;
const viewNames = { cns: 'Compute nodes', cluster: 'Cluster', vnets: 'Vnets', log: 'Log' };

export function enter(main, { reader, at }) {
  const problems = el('section', { 'aria-label': 'What is wrong now' });
  const numbers = el('section', { class: 'cards four', 'aria-label': 'The last hour' });
  const changes = el('section', { 'aria-label': 'What changed in the last hour' });
  const fresh = freshness(reader, 0, () => read());
  main.append(head('Overview', fresh, () => ['cluster', 'overview']), at ? notice('The overview is of now: what was wrong in the past is not kept.') : '', problems, numbers, changes);
  let left = false, reading = false, before = ['', '', ''];
  async function read() {
    if (reading) return;
    reading = true;
    try {
      const o = await reader.get('/overview');
      if (left) return;
      const now = [JSON.stringify([o.problems, o.nodes]), JSON.stringify([o.history, o.nodes]), JSON.stringify(o.changes)];
      // Only what differs is drawn anew: focus and what was opened stay.
      if (now[0] !== before[0]) replaceAll(problems, showProblems(o));
      if (now[1] !== before[1]) replaceAll(numbers, showNumbers(o));
      if (now[2].replace(/"since":"[^"]*"/, '') !== before[2].replace(/"since":"[^"]*"/, '')) replaceAll(changes, showChanges(o));
      before = now;
      fresh.got(true);
    } catch (e) {
      fresh.failed(e.message);
    } finally {
      reading = false;
    }
  }
  read();
  const timer = setInterval(() => { if (!document.hidden) read(); }, readMs);
  return () => { left = true; clearInterval(timer); fresh.leave(); };
}

function showProblems(o) {
  const n = o.nodes;
  const nodes = n.known || n.connected
    ? `${number(n.connected)} of ${number(n.known)} compute nodes connected${n.here_only ? ' to this server (the leader could not be asked for the others)' : ''}${n.lag_ms > 0 ? `, the worst ${duration(n.lag_ms)} behind` : ''}`
    : 'The log has no compute node yet';
  if (!o.problems.length) {
    return el('div', { class: 'allwell' }, el('h3', {}, 'Nothing is wrong'), el('p', {}, `${nodes}. `, o.head ? ['The last entry, ', el('a', { href: `#/log?seq=${o.head}` }, `#${number(o.head)}`), ', was written ', when(o.written), '.'] : 'The log is empty.'));
  }
  const worst = o.problems.filter((p) => p.severity === 'bad').length;
  return [el('h3', {}, `${number(o.problems.length)} ${o.problems.length === 1 ? 'thing needs' : 'things need'} a look${worst === o.problems.length ? ' now' : worst ? `, ${number(worst)} of them now` : ''}`),
    el('ul', { class: 'problems' }, o.problems.map(problem)), el('p', { class: 'quiet' }, `${nodes}.`)];
}

function problem(p) {
  return el('li', { class: `problem ${p.severity}` },
    el('p', { class: 'what' }, el('span', { class: 'severity' }, p.severity === 'bad' ? 'Now' : 'Soon'), p.text),
    p.nodes ? el('ul', { class: 'names' }, p.nodes.map((node) => el('li', {}, named('cn', node.cn_uuid, node.hostname), ` ${node.why}`))) : null,
    el('p', { class: 'do' }, `${p.do}. `, el('a', { href: `#/${p.view}` }, viewNames[p.view] || p.view), ' · ', el('span', { class: 'quiet' }, `docs/${p.docs}`)));
}

const last = (values) => { for (let i = values.length - 1; i >= 0; i--) if (values[i] != null) return values[i]; return null; };
const sum = (values) => values.reduce((a, b) => a + (b || 0), 0);

function showNumbers(o) {
  const h = o.history, s = h.every_ms / 1000;
  const minutes = Math.round(h.writes.length * s / 60);
  const of = minutes < 60 ? `the ${Math.max(1, minutes)} min since this server started` : 'the last hour';
  const most = (values) => Math.max(0, ...values.filter((v) => v != null));
  const writes = last(h.writes), kernel = last(h.kernel_ms);
  const one = (title, big, values, label, rest) => el('section', { class: 'card' }, el('h3', {}, title), el('p', { class: 'big' }, big), spark(values, `${title}, ${of}: ${label}`), el('p', { class: 'quiet' }, rest));
  return [
    one('Writes', writes == null ? '–' : `${number(Math.round(writes / s * 10) / 10)}/s`, h.writes, `at most ${number(Math.round(most(h.writes) / s))} entries a second`, `${number(sum(h.writes))} entries in ${of}`),
    one('99 % in kernels within', kernel == null ? '–' : duration(kernel), h.kernel_ms, kernel == null ? 'nothing was measured' : `at most ${duration(most(h.kernel_ms))}`, kernel == null ? 'nothing was written that a node here must program' : `at worst ${duration(most(h.kernel_ms))}; nodes of this server`),
    one('Nodes behind', number(o.nodes.behind), h.behind, `at most ${number(most(h.behind))}`, `by over 5 s; at most ${number(most(h.behind))} in ${of}`),
    one('Refused writes', number(sum(h.refused)), h.refused, `${number(sum(h.refused))} in all`, `in ${of}${(h.refused_codes || []).length ? `; sent to this server: ${h.refused_codes.slice(0, 6).map((c) => `${number(c.n)} ${c.code}`).join(', ')}` : ''}`),
  ];
}

// logLink leads to the entries that a number counts.
const logLink = (filters, n) => (n ? el('a', { href: `#/log?${new URLSearchParams({ ...filters, since: '1h' })}` }, number(n)) : '0');

function showChanges(o) {
  const c = o.changes;
  if (!c.entries) return [el('h3', {}, 'What changed in the last hour'), el('p', {}, 'Nothing was written.')];
  const actor = (a) => (/^(others|compute nodes)$/.test(a.actor) ? a.actor : el('a', { href: `#/log?${new URLSearchParams({ actor: a.actor, since: '1h' })}` }, a.actor));
  return [el('h3', {}, 'What changed in the last hour'),
    c.skipped ? notice(`${number(c.skipped)} entries came too fast to be counted here: the log has them.`) : null,
    el('div', { class: 'pair' },
      table(`By kind, ${number(c.entries)} ${c.entries === 1 ? 'entry' : 'entries'}`, ['Kind', 'Created', 'Updated', 'Deleted'], c.kinds.map((k) => [
        el('a', { href: `#/log?kind=${k.kind}&since=1h` }, k.kind), logLink({ kind: k.kind, action: 'create' }, k.create), logLink({ kind: k.kind, action: 'update' }, k.update), logLink({ kind: k.kind, action: 'delete' }, k.delete)])),
      table('By actor', ['Actor', 'Entries'], c.actors.map((a) => [actor(a), number(a.entries)])))];
}
