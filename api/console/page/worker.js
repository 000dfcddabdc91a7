// The worker reads the log as it happens, keeps the newest entries, filters
// them, and hands the page what is in sight. It also paints the map of compute
// nodes. So neither reading nor painting takes the page's own thread.

import { HeatMap } from './heatmap.js';

const kept = 20000;       // entries that are held here; older ones are asked of the server
const newsMs = 100;       // the page is told at most this often
const pageLines = 200;    // entries of one page back
const searchesAtOnce = 20; // answers of a search for one page, or one count: each looks at 100,000 entries at most
const longestWait = 5000; // ms between two attempts
const rateMs = 1000;
const mostTouched = 200;  // ids of objects that one message names

let stream = null; // the one that is read now
const map = new HeatMap((m) => postMessage(m));

// Queue is a list that loses its oldest when it is full, at no cost of moving.
class Queue {
  constructor() { this.clear(); }
  clear() { this.items = []; this.first = 0; }
  get length() { return this.items.length - this.first; }
  // prepend adds older items, the newest first, as far as there is room.
  prepend(items) {
    const room = Math.max(0, kept - this.length);
    this.items = [...items.slice(0, room).reverse(), ...this.items.slice(this.first)];
    this.first = 0;
    return room >= items.length;
  }
  add(item) {
    this.items.push(item);
    if (this.length > kept) this.items[this.first++] = null;
    if (this.first > kept) { this.items = this.items.slice(this.first); this.first = 0; }
  }
  back(i) { return this.items[this.items.length - 1 - i]; } // 0 is the newest
}

let shown = new Queue(); // what the server selected, and of that what has the text
let frozen = null;       // what was shown when the reader began to scroll
const counts = { received: 0, shown: 0, gaps: 0, head: 0, live: 0 };
let text = ''; // in lower case; the server seeks it in older entries, this worker in new ones
let sight = { from: 0, n: 40 };
let live = false;
let broken = '';
let past = false;
let rate = 0;
let rated = { at: 0, received: 0 };
let timer = 0;

// read makes an item of a line of the log.
function read(line) {
  const e = typeof line === 'string' ? JSON.parse(line) : line;
  if (!e.seq) return null;
  e.line = typeof line === 'string' ? line : JSON.stringify(line); // of the object only the text is kept
  e.title = titleOf(e);
  touch(e);
  delete e.object;
  delete e.scopes;
  return e;
}

function add(line) {
  const e = read(line);
  if (!e) return;
  counts.received++;
  if (stream && stream.dense && counts.head && e.seq !== counts.head + 1) counts.gaps++;
  counts.head = e.seq;
  if (!text || line.toLowerCase().includes(text)) { shown.add(e); counts.shown++; counts.live++; }
  news();
}

// touched are the kinds and objects of the entries since the page was last told.
let touched = { kinds: new Set(), ids: new Set(), many: false };
function touch(e) {
  touched.kinds.add(e.kind);
  if (touched.ids.size < mostTouched) touched.ids.add(e.id); else touched.many = true;
}
function takeTouched() {
  const t = touched;
  if (!t.kinds.size) return undefined;
  touched = { kinds: new Set(), ids: new Set(), many: false };
  return { kinds: [...t.kinds], ids: [...t.ids], many: t.many };
}

// titleOf says what an entry is about, in a line.
function titleOf(e) {
  const o = e.object || {};
  if (e.action === 'update') {
    return (e.changed || []).map((c) => `${c.path}: ${plain(c.old)} → ${plain(o[c.path])}`).join(', ').slice(0, 300);
  }
  return [o.alias, o.name, o.hostname, o.ip, o.subnet, o.state].filter((v) => typeof v === 'string' && v).join(' · ').slice(0, 300);
}

function plain(v) {
  if (v === undefined || v === null) return '–';
  const text = typeof v === 'string' ? v : JSON.stringify(v);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
}

// Stream reads GET /log as server-sent events, and begins again where it was.
class Stream {
  constructor(query, after) {
    this.query = query;
    this.after = after; // a cursor
    this.dense = !Object.keys(query).length;
    this.stop = new AbortController();
    this.last = ''; // id of the last event, as a server wants it: its cursor
    this.run();
  }

  close() { this.stop.abort(); }

  async run() {
    for (let wait = 250; !this.stop.signal.aborted; wait = Math.min(2 * wait, longestWait)) {
      const before = counts.received;
      try {
        await this.read();
        broken = 'the server ended the stream';
      } catch (e) {
        if (this.stop.signal.aborted) return;
        broken = e.message;
      }
      live = false;
      news();
      if (counts.received > before) wait = 250;
      await new Promise((go) => setTimeout(go, wait));
    }
  }

  async read() {
    const q = new URLSearchParams({ ...this.query, follow: '1' });
    if (!this.last) { if (this.after) q.set('after', this.after); else q.set('last', pageLines); }
    const headers = { Accept: 'text/event-stream' };
    if (this.last) headers['Last-Event-ID'] = this.last;
    const response = await fetch(`/log?${q}`, { headers, signal: this.stop.signal });
    if (!response.ok) {
      // A budget is used up: the server says when to come again.
      const after = Number(response.headers.get('Retry-After'));
      if (response.status === 429 && after) await new Promise((go) => setTimeout(go, 1000 * Math.min(after, 60)));
      // The place is not kept any more: from the newest on, and that is a gap. A
      // server that is behind the place (409, after its restart) is asked again.
      // One that has another log, since a snapshot was restored, shows that from its
      // newest on, and nothing of what was shown before is in it.
      const text = await response.text();
      const other = response.status === 409 && text.includes('CursorOfOtherLog');
      if (other) {
        shown.clear();
        frozen = null;
        if (search) Object.assign(search, { place: null, counted: { found: 0, looked: 0, next: null } });
      }
      if (response.status === 410 || other) { this.last = ''; this.after = ''; counts.head = 0; counts.gaps++; }
      throw new Error(`HTTP ${response.status} ${text.slice(0, 300)}`);
    }
    broken = '';
    live = true;
    news();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      for (const line of lines) this.line(line);
    }
  }

  line(line) {
    if (line.startsWith('event: ')) this.event = line.slice(7);
    else if (line.startsWith('id: ')) this.id = line.slice(4);
    else if (line.startsWith('data: ')) this.data = line.slice(6);
    else if (line === '' && this.data) {
      const data = this.data;
      this.data = '';
      if (this.id) this.last = this.id;
      if (this.event !== 'next') add(data);
    }
  }
}

// Search reads older entries, page by page, and counts how many there are in all. Of a long
// log it looks at a part, and says so.
class Search {
  constructor(query, before) {
    this.query = query;
    this.stop = new AbortController();
    this.place = before; // where the next page begins; null: nothing older is left
    // counted: found among looked entries; next is where counting goes on, null at the end.
    this.counted = { found: 0, looked: 0, next: before };
    this.busy = '';
    this.failed = '';
    this.full = false;
    this.head = null;
  }

  close() { this.stop.abort(); }

  async ask(more, before) {
    for (;;) {
      const q = new URLSearchParams({ ...this.query, ...more });
      if (before) q.set('before', before);
      const response = await fetch(`/log/search?${q}`, { signal: this.stop.signal });
      const body = await response.text();
      const after = Number(response.headers.get('Retry-After'));
      if (response.status === 429 && after) { await new Promise((go) => setTimeout(go, 1000 * Math.min(after, 60))); continue; }
      if (!response.ok) throw new Error(reason(response.status, body));
      return JSON.parse(body);
    }
  }

  // page reads the next older entries, as many as fill a page unless they are rare.
  async page() {
    if (this.busy || this.place === null || this.full) return;
    this.busy = 'reading';
    const counting = this.counted.next === this.place; // nothing was counted beyond the pages yet
    try {
      let got = 0;
      for (let i = 0; i < searchesAtOnce && got < pageLines && this.place !== null; i++) {
        const answer = await this.ask({ limit: pageLines - got }, this.place);
        if (!this.head) this.head = answer.head;
        got += answer.entries.length;
        this.take(answer, counting);
        news();
      }
    } catch (e) {
      if (!this.stop.signal.aborted) this.failed = e.message;
    } finally {
      this.busy = '';
      news();
    }
  }

  take(answer, counting) {
    const items = answer.entries.map(read);
    if (frozen) frozen.prepend(items);
    this.full = !shown.prepend(items);
    counts.received += items.length;
    counts.shown += items.length;
    if (frozen) frozen.counted += items.length;
    this.place = answer.next || null;
    if (counting) {
      this.counted.found += answer.found;
      this.counted.looked += answer.looked;
      this.counted.next = this.place;
    }
  }

  // count goes on counting, for some answers.
  async count() {
    if (this.busy) return;
    this.busy = 'counting';
    const c = this.counted;
    try {
      for (let i = 0; i < searchesAtOnce && c.next !== null; i++) {
        const answer = await this.ask({ count: '1' }, c.next);
        c.found += answer.found;
        c.looked += answer.looked;
        c.next = answer.next || null;
        news();
      }
    } catch (e) {
      if (!this.stop.signal.aborted) this.failed = e.message;
    } finally {
      this.busy = '';
      news();
    }
  }
}

function reason(status, body) {
  try {
    const said = JSON.parse(body).error || JSON.parse(body);
    const fields = (said.errors || []).map((f) => `${f.field}: ${[f.message, f.remedy].filter(Boolean).join('; ')}`);
    return [said.message, ...fields, fields.length ? '' : said.remedy].filter(Boolean).join(': ');
  } catch {
    return `HTTP ${status}`;
  }
}

let search = null;

// start begins with the newest page, and then follows what comes, unless the end is given.
async function start(m) {
  if (stream) stream.close();
  if (search) search.close();
  stream = null;
  shown.clear();
  frozen = null;
  Object.assign(counts, { received: 0, shown: 0, gaps: 0, head: 0, live: 0 });
  rated = { at: 0, received: 0 };
  text = (m.query.text || '').toLowerCase();
  live = false;
  broken = '';
  past = Boolean(m.until || m.query.until);
  const mine = search = new Search(m.query, m.until ? String(m.until + 1) : '');
  news();
  for (let wait = 250; search === mine; wait = Math.min(2 * wait, longestWait)) {
    await mine.page();
    if (search !== mine) return;
    if (mine.head || mine.place === null) break;
    if (/parameter/i.test(mine.failed)) { broken = ''; news(); return; } // a filter is wrong: asking again is no use
    broken = mine.failed || 'the server does not answer';
    news();
    await new Promise((go) => setTimeout(go, wait));
    mine.failed = '';
  }
  broken = '';
  if (!past) {
    const { text: _, since: __, ...query } = m.query;
    counts.head = Object.keys(query).length ? 0 : Number(mine.head.split('.')[1]);
    stream = new Stream(query, mine.head);
  }
  if (m.counted) mine.count();
  news();
}

function news() {
  if (!timer) timer = setTimeout(() => tell(false), newsMs);
}

function tell(asked) {
  timer = 0;
  const now = performance.now();
  if (!rated.at) rated = { at: now, received: counts.received };
  if (now - rated.at > rateMs) {
    rate = (counts.received - rated.received) * 1000 / (now - rated.at);
    rated = { at: now, received: counts.received };
    if (rate > 0) setTimeout(news, 1.5 * rateMs); // so that it falls to nothing when nothing comes
  }
  const from = frozen || shown;
  const rows = [];
  for (let i = sight.from; i < Math.min(sight.from + sight.n, from.length); i++) {
    const e = from.back(i);
    if (!e) break;
    rows.push({ seq: e.seq, time: e.time, kind: e.kind, action: e.action, id: e.id, title: e.title, actor: e.actor });
  }
  postMessage({
    is: 'log', asked, rows, from: sight.from, length: from.length, counts: { ...counts }, live, broken, past, rate,
    search: search && { ...search.counted, busy: search.busy, failed: search.failed, more: search.place !== null, full: search.full, together: search.place === search.counted.next },
    waiting: frozen ? counts.shown - frozen.counted : 0, touched: takeTouched(),
  });
}

const orders = {
  log: start,
  older() { if (search) search.page(); },
  count() { if (search) search.count(); },
  sight(m) {
    sight = { from: m.from, n: m.n };
    if (m.from > 0 && !frozen) {
      frozen = new Queue();
      frozen.items = shown.items.slice(shown.first);
      frozen.counted = counts.shown;
    }
    if (m.from === 0) frozen = null;
    clearTimeout(timer);
    tell(true); // a scroll is answered at once
  },
  entry(m) {
    let line = '';
    for (let low = 0, high = shown.length - 1; low <= high;) {
      const middle = (low + high) >> 1;
      const e = shown.back(middle);
      if (e.seq === m.seq) { line = e.line; break; }
      if (e.seq > m.seq) low = middle + 1; else high = middle - 1;
    }
    postMessage({ ask: m.ask, line });
  },
  map: (m) => map.open(m),
  mapSize: (m) => map.resize(m),
  mapMode: (m) => map.setMode(m.mode),
  mapAt: (m) => postMessage({ ask: m.ask, node: map.nodeAt(m.index) }),
  mapClose: () => map.close(),
};

addEventListener('message', (e) => orders[e.data.do](e.data));
start({ query: {} });
