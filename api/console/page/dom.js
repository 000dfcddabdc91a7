// Elements. Text goes in as text nodes only: nothing that the log holds is ever
// parsed as markup (and the page's policy of Trusted Types has no way to).

// hidden are characters that show nothing, or change how others show: controls, what is
// not assigned, separators of lines, directions of text, spaces that look like U+0020.
const hidden = /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;

// visible is a text that others chose, in the form in which the page shows it: hidden
// characters as \u escapes, as the commands show them.
export function visible(text) {
  return text.replace(hidden, (c) => {
    if (c === '\n') return '\\n';
    if (c === '\t') return '\\t';
    const hex = c.codePointAt(0).toString(16);
    return hex.length > 4 ? `\\U${hex.padStart(8, '0')}` : `\\u${hex.padStart(4, '0')}`;
  });
}

export const byId = (id) => document.getElementById(id);

export function el(tag, attrs, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

export function svg(tag, attrs, ...children) {
  return fill(document.createElementNS('http://www.w3.org/2000/svg', tag), attrs, children);
}

function fill(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs || {})) {
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, '');
    else if (value !== false && value != null) node.setAttribute(name, name === 'value' ? value : visible(String(value)));
  }
  const lines = node.tagName === 'PRE' || node.tagName === 'DD'; // their style keeps newlines
  const show = lines ? (text) => text.split('\n').map(visible).join('\n') : visible;
  node.append(...children.flat(Infinity).filter((c) => c != null).map((c) => (c instanceof Node ? c : show(String(c)))));
  return node;
}

export function clear(node) { node.replaceChildren(); return node; }

// set changes a text only if it differs: a node that stays costs no layout.
export function set(node, text) {
  const shown = visible(String(text));
  if (node.textContent !== shown) node.textContent = shown;
}

const grouped = new Intl.NumberFormat('en');
export const number = (n) => grouped.format(n);

// headOf reads the seq of a cursor, CLUSTER.SEQ.CHAIN, in what a server says of itself.
export const headOf = (status) => Number(((status.detail || {}).head || '0.0.0').split('.')[1]);

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
export function bytes(n) {
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i && n < 100 ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

export function duration(ms) {
  if (ms < 0) return 'never';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 120e3) return `${(ms / 1000).toFixed(1)} s`;
  return ms < 7.2e6 ? `${Math.round(ms / 60e3)} min` : `${Math.round(ms / 3.6e6)} h`;
}

// value is how a JSON value stands in a cell.
export function value(v) {
  if (v === undefined || v === null || v === '') return '–';
  return typeof v === 'string' ? v : JSON.stringify(v);
}

export function table(caption, heads, rows) {
  return el('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption },
    el('table', {}, el('caption', {}, caption),
      el('thead', {}, el('tr', {}, heads.map((h) => el('th', { scope: 'col' }, h)))),
      el('tbody', {}, rows.map((cells) => el('tr', {}, cells.map((c, i) => el('td', { 'data-head': heads[i] }, c)))))));
}

export const paths = { nic_tag: 'nic_tags', network: 'networks', nic: 'nics', server: 'servers', vm: 'vms', vmm: 'vmms' };

// listed are the kinds that have pages: those with a path of their own, and what
// else of the network and its work a person wants to read.
export const listed = new Set([...Object.keys(paths), 'network_pool', 'fabric_vlan', 'ip', 'aggregation', 'router', 'migration', 'task', 'ticket', 'setting']);

// objectLink leads to an object's page; kinds without one are plain text.
export function objectLink(kind, id, text) {
  if (!listed.has(kind)) return document.createTextNode(visible(text || id));
  return el('a', { href: `#/object/${kind}/${encodeURIComponent(id)}` }, text || id);
}

export function notice(text) { return el('p', { class: 'notice', role: 'alert' }, text); }

// field is a labelled control.
export function field(label, control) { return el('label', { class: 'field' }, el('span', {}, label), control); }

export function debounce(ms, fn) {
  let timer = 0;
  return (...args) => { clearTimeout(timer); timer = setTimeout(() => fn(...args), ms); };
}
