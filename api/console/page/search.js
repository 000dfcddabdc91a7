// The search box: from a name, an address, an id or a number to the thing.

import { clear, debounce, el, number, headOf } from './dom.js';
import { hrefOf, named } from './parts.js';

const waitMs = 200;      // after the last key
const mostNetworks = 10; // with a VLAN or a vnet of a number
const groups = ['entry', 'vnet', 'vlan', 'vm', 'nic', 'network', 'server', 'log'];

// find gives candidates {kind, id, name, href, why}, at most some of each kind.
export async function find(reader, text, at) {
  const found = [];
  const seq = /^#?(\d{1,19})$/.exec(text);
  const asks = [];
  if (seq) {
    const n = Number(seq[1]), head = headOf(reader.cluster || {});
    if (n > 0 && n <= head) found.push({ kind: 'entry', id: String(n), name: `#${number(n)} of the log`, href: hrefOf('seq', n) });
    if (!text.startsWith('#')) {
      const networks = (query) => reader.get('/networks', { ...query, limit: mostNetworks }, at).catch(() => []);
      asks.push(networks({ vnet_id: n, fabric: 'true' }).then((list) => {
        if (list.length) found.push({ kind: 'vnet', id: String(n), name: `Vnet ${n}: ${list.map((w) => w.name).join(', ').slice(0, 80)}`, href: hrefOf('vnet', n) });
      }));
      asks.push(networks({ vlan_id: n }).then((list) => {
        for (const w of list) found.push({ kind: 'vlan', id: w.uuid, name: w.name, href: hrefOf('network', w.uuid), why: `VLAN ${n}, ${w.subnet}` });
      }));
    }
  }
  let more = false;
  if (!text.startsWith('#')) {
    asks.push(reader.get('/names', { name: text }, at).then((answer) => {
      more = Boolean(answer.more);
      for (const m of answer.found) found.push({ ...m, href: m.kind === 'server' ? hrefOf('cn', m.id) : hrefOf(m.kind, m.id), why: { name: 'by its name', address: 'by an address', prefix: 'by the beginning of its id', id: 'by its id' }[m.by] });
    }));
  }
  await Promise.all(asks);
  const place = (kind) => (groups.indexOf(kind) + 1 || groups.length);
  found.sort((a, b) => place(a.kind) - place(b.kind));
  return { found: found.filter((f) => f.href), more };
}

// searchBox makes the form of the page's header find things.
export function searchBox(reader, atOf) {
  const form = document.getElementById('search');
  const input = document.getElementById('search-text');
  const box = document.getElementById('found');
  let asked = 0, result = null, wanted = false; // wanted: Enter was pressed

  function close() { box.hidden = true; clear(box); result = null; }

  function go(href) {
    close();
    input.value = '';
    location.hash = href;
    document.getElementById('main').focus();
  }

  function show(text) {
    const { found, more } = result;
    clear(box);
    box.hidden = false;
    const byKind = Map.groupBy(found, (f) => f.kind);
    for (const [kind, list] of byKind) {
      box.append(el('h2', {}, kind.replace('_', ' ')), el('ul', {}, list.map((f) => el('li', {}, named(f.kind, f.id, f.name, f.href), f.why ? el('span', { class: 'quiet' }, ` ${f.why}`) : null))));
    }
    box.append(el('p', { class: 'quiet', role: 'status' }, found.length ? `${number(found.length)} found${more ? ', and others: write more of it' : ''}` : `Nothing has the name, address or id "${text}".`));
    box.append(el('p', {}, el('a', { href: `#/log?${new URLSearchParams({ text })}`, 'data-log': '1' }, 'Look for it in the whole log')));
  }

  async function ask() {
    const text = input.value.trim();
    const mine = ++asked;
    if (!text) { close(); return; }
    try {
      const answer = await find(reader, text, atOf());
      if (mine !== asked) return; // something else was typed meanwhile
      result = answer;
      if (wanted && answer.found.length === 1) { go(answer.found[0].href); return; }
      show(text);
    } catch (e) {
      if (mine !== asked) return;
      clear(box).append(el('p', { role: 'alert' }, e.message));
      box.hidden = false;
    } finally {
      if (mine === asked) wanted = false;
    }
  }
  const soon = debounce(waitMs, () => { if (!wanted) ask(); });

  input.addEventListener('input', () => { wanted = false; soon(); });
  form.addEventListener('submit', (e) => { e.preventDefault(); wanted = true; ask(); });
  box.addEventListener('click', (e) => { if (e.target.closest('a')) { close(); input.value = ''; } });
  form.addEventListener('keydown', (e) => {
    if (e.key === 'Escape') { close(); input.focus(); return; }
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (!step || box.hidden) return;
    const links = [...box.querySelectorAll('a')];
    const i = links.indexOf(document.activeElement) + step;
    (i < 0 ? input : links[Math.min(i, links.length - 1)]).focus();
    e.preventDefault();
  });
  form.addEventListener('focusout', (e) => { if (!form.contains(e.relatedTarget)) setTimeout(() => { if (!form.contains(document.activeElement)) box.hidden = true; }, 150); });
  input.addEventListener('focus', () => { if (result) box.hidden = false; });
  return { focus() { input.focus(); input.select(); } };
}
