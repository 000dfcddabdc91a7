// Parts that several views share: names, times, the mark that says how fresh a view is,
// and the command that prints the same.

import { clear, el, listed, set, svg } from './dom.js';

// hrefOf is the address of an object's page, or '' for a kind without one. A server is
// shown as the compute node that it is.
export function hrefOf(kind, id) {
  if (kind === 'seq') return `#/log?seq=${id}`;
  if (kind === 'vnet') return `#/vnets/${id}`;
  if (kind === 'cn') return `#/cns/${encodeURIComponent(id)}`;
  return listed.has(kind) ? `#/object/${kind}/${encodeURIComponent(id)}` : '';
}

// named is an object by the name that people know it by, with its id on demand: the button
// behind the name shows it. href may be given if it is not the object's own page.
export function named(kind, id, name, href = hrefOf(kind, id)) {
  const text = name || id;
  const link = href ? el('a', { href, title: id }, text) : el('span', { title: id }, text);
  if (!name || name === id) return link;
  const code = el('code', { class: 'id', hidden: true }, id);
  const button = el('button', {
    type: 'button', class: 'show-id', 'aria-expanded': 'false', 'aria-label': `Id of ${text}`, title: id,
    onclick: (e) => {
      e.stopPropagation();
      code.hidden = !code.hidden;
      button.setAttribute('aria-expanded', String(!code.hidden));
    },
  }, 'id');
  return el('span', { class: 'named' }, link, button, code);
}

// ago is how long ago a time in ms was, in words.
export function ago(ms) {
  const s = Math.round(Math.abs(ms) / 1000);
  const [n, unit] = s < 60 ? [s, 's'] : s < 5400 ? [Math.round(s / 60), 'min'] : s < 129600 ? [Math.round(s / 3600), 'h'] : [Math.round(s / 86400), 'days'];
  return ms < -1000 ? `in ${n} ${unit}` : s < 1 ? 'now' : `${n} ${unit} ago`;
}

// absolute is a time of the log as people read it, in UTC to the second.
export const absolute = (text) => `${text.slice(0, 10)} ${text.slice(11, 19)} UTC`;

const times = new Set(); // WeakRef: the times that stand in the page
const timesMs = 5000;    // between two looks at the clock

// when is a time of the log (RFC 3339) as a <time>: relative, and absolute on hover and
// for who turns on "absolute times".
export function when(text) {
  if (!text) return document.createTextNode('–');
  const node = el('time', { datetime: text, title: `${text}, ${new Date(text).toLocaleString()}` });
  write(node);
  times.add(new WeakRef(node));
  return node;
}

let shownAbsolute = false;

function write(node) {
  const text = node.getAttribute('datetime');
  set(node, shownAbsolute ? absolute(text) : ago(Date.now() - Date.parse(text)));
}

function writeTimes() {
  for (const ref of times) {
    const node = ref.deref();
    if (node && node.isConnected) write(node);
    else if (!node) times.delete(ref);
  }
}
setInterval(() => { if (!document.hidden && !shownAbsolute) writeTimes(); }, timesMs);

// absoluteTimes turns all times of the page to absolute ones, or back.
export function absoluteTimes(on) {
  shownAbsolute = on;
  writeTimes();
}

const behindNs = 5e9; // a server that has not heard of the leader for so long shows an old state

// freshness is the mark of a view that says whether it is live, or as of when and why not.
// A view calls got when it has read what it shows, live if it follows what happens, failed
// when a question failed, and leave when it is left. again, if given, reads anew.
export function freshness(reader, at, again) {
  const text = el('span', {});
  const button = el('button', { type: 'button', class: 'link', hidden: !again, onclick: () => again() }, 'Read again');
  const node = el('p', { class: 'fresh', role: 'status', 'aria-label': 'How fresh this is' }, text, button);
  let last = 0, follows = false, failure = '';
  const draw = () => {
    const detail = (reader.cluster || {}).detail || {};
    const why = at ? 'you look at the past'
      : failure || (reader.away ? `this server does not answer: ${reader.away}` : '')
      || (reader.broken ? `not connected to the stream: ${reader.broken}` : '')
      || (detail.age_ns > behindNs ? `this server last heard from the leader ${ago(detail.age_ns / 1e6)}` : '');
    const live = follows && !why && last > 0;
    const moment = last ? new Date(last).toISOString() : '';
    node.classList.toggle('live', live);
    node.classList.toggle('stale', Boolean(why) && !at);
    if (live) { set(text, 'Live'); button.hidden = true; return; }
    const of = at ? `As of entry #${at}` : last ? `As of ${moment.slice(11, 19)} UTC (${ago(Date.now() - last)})` : 'Reading';
    set(text, why ? `${of}; not live: ${why}. ` : `${of}. `);
    button.hidden = !again || Boolean(at);
  };
  const timer = setInterval(draw, 1000);
  draw();
  return {
    node,
    got(live) { last = Date.now(); follows = Boolean(live); failure = ''; draw(); },
    failed(message) { failure = message; draw(); },
    leave() { clearInterval(timer); },
  };
}

// shell is an argument as a shell reads it back.
export const shell = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

// commandOf is the text of a command, with the server that this page is of. Last words
// {piped: words} are programs of which each reads what the one before prints.
export function commandOf(words) {
  const line = (all) => all.map(shell).join(' ');
  const own = line(['rutter', ...words.filter((w) => !w.piped), '--server', location.origin]);
  return [own, ...words.filter((w) => w.piped).map((w) => line(w.piped))].join(' | ');
}

// copyCommand is a button that copies the command that prints what the view shows. words
// gives its arguments without "rutter" and the server, at the time of the click.
export function copyCommand(words) {
  const said = el('span', { role: 'status', class: 'copied' });
  const shown = el('code', { class: 'command', hidden: true, tabindex: '0' });
  const button = el('button', {
    type: 'button', class: 'copy', title: 'Copy the rutter command that prints the same',
    onclick: async () => {
      const text = commandOf(words());
      shown.hidden = false;
      set(shown, text);
      try {
        await navigator.clipboard.writeText(text);
        set(said, 'Copied');
      } catch {
        // Without https a browser may keep the clipboard from the page: the text can be chosen.
        getSelection().selectAllChildren(shown);
        set(said, 'Press Ctrl-C to copy');
      }
    },
  }, 'Copy as command');
  return el('span', { class: 'copying' }, button, said, shown);
}

// head is how a view begins: its title, how fresh it is, and its command if it has one.
export function head(title, fresh, words) {
  return el('div', { class: 'viewhead' }, el('h2', {}, title), fresh ? fresh.node : null, words ? copyCommand(words) : null);
}

// spark draws numbers as a line over time; null is a gap. label says in words what it shows.
export function spark(values, label) {
  const width = 240, height = 44, known = values.filter((v) => v != null);
  const top = Math.max(1e-9, ...known);
  const x = (i) => (values.length < 2 ? 0 : i * width / (values.length - 1)).toFixed(1);
  let d = '', pen = false;
  values.forEach((v, i) => {
    if (v == null) { pen = false; return; }
    d += `${pen ? 'L' : 'M'}${x(i)} ${(height - 2 - v / top * (height - 6)).toFixed(1)}`;
    pen = true;
  });
  return svg('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label },
    svg('path', { class: 'base', d: `M0 ${height - 1}H${width}` }), d ? svg('path', { class: 'line', d }) : null);
}

// replaceAll puts other children into a node, and keeps the focus if it was on a control
// with the same key (data-key).
export function replaceAll(node, ...children) {
  const focused = node.contains(document.activeElement) ? document.activeElement.dataset.key : '';
  clear(node).append(...children.flat(Infinity).filter((c) => c != null));
  if (focused) {
    const same = [...node.querySelectorAll('[data-key]')].find((n) => n.dataset.key === focused);
    if (same) same.focus({ preventScroll: true });
  }
  return node;
}
