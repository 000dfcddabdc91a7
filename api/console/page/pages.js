// A list in pages: one page of rows stands in the view, so that a list of thousands costs
// no more than a short one.

import { clear, el, number, table } from './dom.js';

// PagedTable shows rows that the view holds. draw gives the cells of one item.
export class PagedTable {
  constructor(caption, heads, draw, size = 25) {
    Object.assign(this, { caption, heads, draw, size, from: 0, items: [] });
    this.box = el('div', {});
    this.earlier = el('button', { type: 'button', onclick: () => this.go(-1) }, 'Earlier');
    this.further = el('button', { type: 'button', onclick: () => this.go(1) }, 'Further');
    this.place = el('span', { role: 'status' });
    this.bar = el('p', { class: 'bar' }, this.earlier, this.further, this.place);
    this.node = el('div', { class: 'paged' }, this.box, this.bar);
  }

  set(items) {
    this.items = items;
    if (this.from >= items.length) this.from = 0;
    this.show();
  }

  go(step) {
    this.from = Math.max(0, Math.min(this.items.length - 1, this.from + step * this.size));
    this.show();
  }

  show() {
    const some = this.items.slice(this.from, this.from + this.size);
    clear(this.box).append(table(`${this.caption}, ${number(this.items.length)}`, this.heads, some.map(this.draw)));
    turn(this.bar, this.earlier, this.further, this.from > 0, this.from + this.size < this.items.length);
    this.place.textContent = some.length ? `${number(this.from + 1)} to ${number(this.from + some.length)} of ${number(this.items.length)}` : 'none';
  }
}

// AskedTable shows a list of the server, a page at a time: ask gives the rows from an offset.
export class AskedTable {
  constructor(caption, heads, ask, draw, size = 50) {
    Object.assign(this, { caption, heads, ask, draw, size, from: 0, turn: 0 });
    this.box = el('div', {});
    this.earlier = el('button', { type: 'button', onclick: () => this.read(Math.max(0, this.from - this.size)) }, 'Earlier');
    this.further = el('button', { type: 'button', onclick: () => this.read(this.from + this.size) }, 'Further');
    this.place = el('span', { role: 'status' });
    this.bar = el('p', { class: 'bar' }, this.earlier, this.further, this.place);
    this.node = el('div', { class: 'paged' }, this.box, this.bar);
  }

  // read asks for the rows from an offset; total, if it is known, is how many there are.
  async read(from = this.from, total = this.total) {
    const mine = ++this.turn;
    const rows = await this.ask(from, this.size);
    if (mine !== this.turn) return; // another page was asked for meanwhile
    this.from = from;
    this.total = total;
    const cells = rows.map(this.draw);
    const text = JSON.stringify(rows) + this.from;
    if (text === this.before && !this.moved) return;
    this.before = text;
    const count = total === undefined ? '' : ` of ${number(total)}`;
    const place = rows.length ? `${number(from + 1)} to ${number(from + rows.length)}${count}` : from ? 'no more' : 'none';
    clear(this.box).append(table(`${this.caption}, ${place}`, this.heads, cells));
    turn(this.bar, this.earlier, this.further, from > 0, rows.length === this.size && (total === undefined || from + rows.length < total));
    this.place.textContent = rows.length || from ? place : '';
  }
}

function turn(bar, earlier, further, back, on) {
  earlier.disabled = !back;
  further.disabled = !on;
  bar.hidden = !back && !on;
}
