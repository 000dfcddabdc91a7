// VNetMap draws the compute nodes of a vnet, by groups: a tile with its name for each of a
// few, a square for each of many. All of it fits into the window.

import { visible } from './dom.js';

// States of a node, from the worst. Each has a mark of its own beside its colour.
export const states = ['failing', 'unknown', 'behind', 'programmed'];
export const words = { failing: 'failing', unknown: 'not known', behind: 'behind', programmed: 'programmed', idle: 'VM not to run' };
const few = 60;            // nodes that get a tile with their name
const tall = 360;          // px that the squares may take in all
const label = 22;          // px of a group's title
const titleWidth = 130;    // px that a title may take
const together = 4;        // more groups than that stand side by side, as blocks
const least = 7, most = 34; // px of a square

export class VNetMap {
  constructor(canvas, choose) {
    this.canvas = canvas;
    this.choose = choose;
    this.groups = [];
    this.cells = [];
    this.at = -1;
    canvas.addEventListener('click', (e) => this.pick(this.cells.findIndex((c) => e.offsetX >= c.x && e.offsetX < c.x + c.w && e.offsetY >= c.y && e.offsetY < c.y + c.h)));
    canvas.addEventListener('keydown', (e) => this.key(e));
    this.dark = matchMedia('(prefers-color-scheme: dark)');
    this.redraw = () => this.draw();
    this.dark.addEventListener('change', this.redraw);
    this.theme = new MutationObserver(this.redraw); // the page's own switch of colours
    this.theme.observe(document.documentElement, { attributes: true });
    this.watch = new ResizeObserver(this.redraw);
    this.watch.observe(canvas.parentElement);
  }

  leave() {
    this.watch.disconnect();
    this.theme.disconnect();
    this.dark.removeEventListener('change', this.redraw);
  }

  // set gives the groups: {title, nodes}. The chosen node stays chosen.
  set(groups) {
    const chosen = this.at >= 0 && this.cells[this.at] ? this.cells[this.at].node.cn_uuid : '';
    this.groups = groups;
    this.draw();
    this.at = chosen ? this.cells.findIndex((c) => c.node.cn_uuid === chosen) : -1;
    this.draw();
  }

  pick(i) {
    if (i < 0 || i >= this.cells.length) return;
    this.at = i;
    this.draw();
    this.choose(this.cells[i].node);
  }

  pickNode(uuid) { this.pick(this.cells.findIndex((c) => c.node.cn_uuid === uuid)); }

  key(e) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[e.key];
    if (e.key === 'ArrowUp' || e.key === 'ArrowDown') this.pick(this.beside(e.key === 'ArrowDown' ? 1 : -1));
    else if (e.key === 'Home') this.pick(0);
    else if (e.key === 'End') this.pick(this.cells.length - 1);
    else if (step) this.pick(this.at < 0 ? 0 : Math.max(0, Math.min(this.cells.length - 1, this.at + step)));
    else return;
    e.preventDefault();
  }

  // beside is the cell below (1) or above (-1) the chosen one, or that one.
  beside(way) {
    const from = this.cells[this.at];
    if (!from) return 0;
    const far = (c) => way * (c.y - from.y) * 1000 + Math.abs(c.x - from.x); // the next row, and there the nearest
    return this.cells.reduce((best, c, i) => (way * (c.y - from.y) > 0 && (best === this.at || far(c) < far(this.cells[best])) ? i : best), this.at);
  }

  // size chooses the tiles: large ones for few nodes, else the largest square with which
  // all fit.
  size(width) {
    const n = this.groups.reduce((sum, g) => sum + g.nodes.length, 0);
    if (n <= few) {
      const cols = Math.max(1, Math.min(6, Math.floor(width / 150)));
      return { w: Math.floor(width / cols), h: 54, cols };
    }
    for (let cell = most; ; cell--) {
      const cols = Math.max(1, Math.floor(width / cell));
      if (cell <= least || this.place(cell, cell, cols, width).height <= tall) return { w: cell, h: cell, cols };
    }
  }

  // place gives each node its cell, and each group its title. A group that is short stands
  // beside the one before it.
  place(w, h, cols, width) {
    this.cells = [];
    const titles = [];
    let x = 0, y = 0, deep = 0; // deep: px of the row of groups that is being filled
    for (const g of this.groups) {
      const own = this.groups.length > together && w <= most ? Math.min(cols, Math.max(Math.ceil(Math.sqrt(4 * g.nodes.length)), Math.ceil(titleWidth / w))) : cols;
      const wide = Math.max(titleWidth, Math.min(own, g.nodes.length) * w);
      if (x > 0 && x + wide > width) { x = 0; y += deep; deep = 0; }
      const top = y + (g.title ? label : 0);
      if (g.title) titles.push({ x, y, text: `${g.title}, ${g.nodes.length}` });
      g.nodes.forEach((node, i) => this.cells.push({ node, x: x + (i % own) * w, y: top + Math.floor(i / own) * h, w, h }));
      deep = Math.max(deep, top - y + Math.ceil(g.nodes.length / own) * h + 6);
      x += Math.ceil((wide + 12) / w) * w;
    }
    return { titles, height: y + deep };
  }

  draw() {
    const width = this.canvas.parentElement.clientWidth;
    if (!width) return;
    const { w, h, cols } = this.size(width);
    const { titles, height: y } = this.place(w, h, cols, width);
    const height = Math.max(h, y);
    const scale = Math.min(2, devicePixelRatio || 1);
    Object.assign(this.canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    this.canvas.style.setProperty('height', `${height}px`);
    this.canvas.style.setProperty('width', `${width}px`);
    const c = this.canvas.getContext('2d');
    c.setTransform(scale, 0, 0, scale, 0, 0);
    const of = (name) => { // the colour as the page computes it, for light or dark
      this.canvas.style.setProperty('color', `var(${name})`);
      return getComputedStyle(this.canvas).color;
    };
    this.colours = { ink: of('--ink'), soft: of('--soft'), line: of('--line'), card: of('--card'), focus: of('--focus'), failing: of('--bad'), behind: of('--warn'), programmed: of('--good'), unknown: of('--soft') };
    c.font = '600 12.5px system-ui, "DejaVu Sans", sans-serif';
    c.textBaseline = 'alphabetic';
    c.fillStyle = this.colours.soft;
    for (const t of titles) c.fillText(visible(t.text), t.x, t.y + 15);
    this.cells.forEach((cell, i) => (w > most ? this.tile(c, cell, i === this.at) : this.square(c, cell, i === this.at)));
  }

  square(c, { node, x, y, w }, chosen) {
    const side = w > 9 ? w - 2 : w - 1, colour = this.colours[node.state];
    if (node.state === 'unknown') { // hollow: nothing is known of it
      c.strokeStyle = colour;
      c.lineWidth = 1.5;
      c.strokeRect(x + 1, y + 1, side - 2, side - 2);
    } else {
      c.fillStyle = colour;
      c.fillRect(x, y, side, side);
    }
    if (side >= 7) mark(c, node.state, x, y, side, this.colours.card);
    if (chosen) {
      c.strokeStyle = this.colours.ink;
      c.lineWidth = 2;
      c.strokeRect(x - 0.5, y - 0.5, side + 1, side + 1);
    }
  }

  tile(c, { node, x, y, w, h }, chosen) {
    const g = this.colours, width = w - 8, height = h - 8;
    c.fillStyle = g.card;
    c.strokeStyle = chosen ? g.ink : g[node.state];
    c.lineWidth = chosen ? 2.5 : 1.2;
    c.setLineDash(node.state === 'unknown' ? [4, 3] : []);
    c.beginPath();
    c.roundRect(x + 2, y + 2, width, height, 6);
    c.fill();
    c.stroke();
    c.setLineDash([]);
    c.fillStyle = c.strokeStyle = g[node.state];
    if (node.state === 'unknown') c.strokeRect(x + 11, y + 12, 9, 9); else c.fillRect(x + 10, y + 11, 11, 11);
    mark(c, node.state, x + 10, y + 11, 11, g.card);
    c.fillStyle = g.ink;
    c.font = '600 13px system-ui, "DejaVu Sans", sans-serif';
    c.fillText(cut(c, visible(node.hostname || node.cn_uuid), width - 34), x + 27, y + 21);
    c.font = '11.5px system-ui, "DejaVu Sans", sans-serif';
    c.fillStyle = g.soft;
    c.fillText(cut(c, `${node.nics} NIC${node.nics === 1 ? '' : 's'}, ${words[node.state]}`, width - 16), x + 10, y + 38);
    this.bar(c, node, x + 10, y + h - 13, width - 16);
  }

  // bar shows the links of a node by state.
  bar(c, node, x, y, width) {
    let from = x;
    for (const state of [...states, 'idle']) {
      const part = width * (node.links[state] || 0) / Math.max(1, node.nics);
      c.fillStyle = state === 'idle' ? this.colours.line : this.colours[state];
      c.fillRect(from, y, part, 3);
      from += part;
    }
  }
}

// mark draws what tells a state without its colour.
function mark(c, state, x, y, side, colour) {
  if (state === 'programmed' || state === 'unknown') return;
  c.strokeStyle = colour;
  c.lineWidth = Math.max(1.4, side / 8);
  c.beginPath();
  if (state === 'failing') { // a cross
    c.moveTo(x + 2.5, y + 2.5); c.lineTo(x + side - 2.5, y + side - 2.5);
    c.moveTo(x + side - 2.5, y + 2.5); c.lineTo(x + 2.5, y + side - 2.5);
  } else { // a bar
    c.moveTo(x + 2, y + side / 2); c.lineTo(x + side - 2, y + side / 2);
  }
  c.stroke();
}

function cut(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let n = text.length;
  while (n > 1 && c.measureText(`${text.slice(0, n)}…`).width > width) n--;
  return `${text.slice(0, n)}…`;
}
