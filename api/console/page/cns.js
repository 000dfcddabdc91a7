// Compute nodes (CNs): one square each, and the ones that need somebody.

import { clear, duration, el, field, notice, number, table, value } from './dom.js';
import { enterNode } from './node.js';
import { freshness, head, named } from './parts.js';

const words = {
  current: 'up to date', behind: 'on its way', late: 'late', drift: 'failing or different',
  gone: 'session ended', never: 'never heard',
};
const order = ['current', 'behind', 'late', 'drift', 'gone', 'never'];

export function enter(main, context) {
  return context.parts.length ? enterNode(main, context) : enterAll(main, context);
}

function enterAll(main, { reader, at }) {
  const fresh = freshness(reader, 0);
  const canvas = el('canvas', { class: 'map', tabindex: '0', role: 'img', 'aria-label': 'Map of compute nodes', 'aria-describedby': 'cn-legend' });
  const mode = el('select', {}, el('option', { value: 'lag' }, 'lag'), el('option', { value: 'drift' }, 'drift put right'));
  const legend = el('ul', { class: 'legend', id: 'cn-legend' });
  const detail = el('section', { class: 'card', 'aria-live': 'polite', 'aria-label': 'Chosen compute node' },
    el('p', {}, 'Choose a square, by pointer or with the arrow keys.'));
  const list = el('div', {});
  main.append(head('Compute nodes', fresh, () => ['cn', 'list']),
    at ? notice('Sessions are of now: how far a compute node was then is not kept.') : '',
    el('div', { class: 'filters' }, field('Colour shows', mode)), legend,
    el('div', { class: 'mapbox' }, canvas, el('div', { class: 'mark', hidden: true })), detail, list);
  const mark = main.querySelector('.mark');
  let shape = { cols: 1, cell: 1, total: 0 };
  let chosen = -1;

  const size = () => ({ width: canvas.parentElement.clientWidth, scale: Math.min(2, window.devicePixelRatio || 1), dark: dark.matches });
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const offscreen = canvas.transferControlToOffscreen();
  reader.send({ do: 'map', canvas: offscreen, ...size() }, [offscreen]);
  const resized = new ResizeObserver(() => reader.send({ do: 'mapSize', ...size() }));
  resized.observe(canvas.parentElement);
  const recolour = () => reader.send({ do: 'mapSize', ...size() });
  dark.addEventListener('change', recolour);
  mode.addEventListener('change', () => reader.send({ do: 'mapMode', mode: mode.value }));

  async function choose(index) {
    if (index < 0 || index >= shape.total) return;
    chosen = index;
    place();
    const { node } = await reader.ask({ do: 'mapAt', index });
    if (node && chosen === index) showNode(detail, node);
  }

  function place() {
    if (chosen < 0 || chosen >= shape.total) { mark.hidden = true; return; }
    mark.hidden = false;
    mark.style.width = mark.style.height = `${shape.cell}px`;
    mark.style.transform = `translate(${(chosen % shape.cols) * shape.cell}px, ${Math.floor(chosen / shape.cols) * shape.cell}px)`;
  }

  canvas.addEventListener('click', (e) => {
    choose(Math.floor(e.offsetY / shape.cell) * shape.cols + Math.min(shape.cols - 1, Math.floor(e.offsetX / shape.cell)));
  });
  canvas.addEventListener('keydown', (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -shape.cols, ArrowDown: shape.cols }[e.key];
    if (e.key === 'Home') choose(0);
    else if (e.key === 'End') choose(shape.total - 1);
    else if (step) choose(Math.max(0, Math.min(shape.total - 1, (chosen < 0 ? 0 : chosen + step))));
    else return;
    e.preventDefault();
  });

  let before = '';
  const off = reader.on('cns', (m) => {
    shape = m;
    place();
    if (m.broken) fresh.failed(m.broken); else fresh.got(true);
    const now = JSON.stringify([m.numbers, m.worst, m.broken]);
    if (now === before) return;
    before = now;
    canvas.setAttribute('aria-label', `Map of ${m.total} compute nodes: ${order.map((g, i) => `${m.numbers[i]} ${words[g]}`).join(', ')}`);
    clear(legend).append(...order.map((g, i) => el('li', { class: `grade ${g}` }, `${number(m.numbers[i])} ${words[g]}`)));
    clear(list);
    if (!m.worst.length) list.append(el('p', { class: 'quiet' }, m.total ? 'All are up to date.' : 'The log has no compute node yet: rutter cn create adds one.'));
    else list.append(table('Those that need a look, the worst first', ['Compute node', 'How it is', 'Why'],
      m.worst.map((n) => [el('button', { type: 'button', class: 'link', onclick: () => choose(n.index) }, n.hostname || n.uuid), words[n.grade], n.why])));
  });

  return () => {
    off();
    fresh.leave();
    resized.disconnect();
    dark.removeEventListener('change', recolour);
    reader.send({ do: 'mapClose' });
  };
}

function showNode(detail, node) {
  const s = node.session || {};
  const rows = [
    ['state', `${words[node.grade]}: ${node.why}`],
    ['server of its session', value(s.server)], ['applied', value(s.applied)], ['programmed', value(s.programmed)],
    ['behind', s.applied === undefined ? '–' : `${number(s.lag_entries)} entries, ${duration(s.lag_ms)}`],
    ['digest', s.digest_ok ? `equal at #${s.digest_checked}` : value(s.digest_mismatches ? `${s.digest_mismatches} scopes differed` : null)],
    ['failing steps', value(s.failing)], ['put right', value(s.healed)], ['last', value(s.drift)], ['resets', value(s.resets)],
  ];
  clear(detail).append(el('h3', {}, named('cn', node.uuid, node.hostname)), el('dl', {}, rows.map(([k, v]) => [el('dt', {}, k), el('dd', {}, v)])));
}
