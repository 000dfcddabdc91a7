// The worker reads the log as it happens, keeps the newest entries, filters
// them, and hands the page what is in sight. It also paints the map of compute
// nodes. So neither reading nor painting takes the page's own thread.

import { HeatMap } from './heatmap.js';

const kept = 20000;       // entries that are held here; older ones are asked of the server
const newsMs = 100;       // the page is told at most this often
const firstLines = 1000;  // entries back from the end when a stream is begun
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
  add(item) {
    this.items.push(item);
    if (this.length > kept) this.items[this.first++] = null;
    if (this.first > kept) { this.items = this.items.slice(this.first); this.first = 0; }
  }
  back(i) { return this.items[this.items.length - 1 - i]; } // 0 is the newest
}

const all = new Queue();
let shown = new Queue(); // of all, those that the filters let through
let frozen = null;       // what was shown when the reader began to scroll
const counts = { received: 0, shown: 0, gaps: 0, head: 0 };
let filters = {};
let sight = { from: 0, n: 40 };
let live = false;
let broken = '';
let past = false;
let rate = 0;
let rated = { at: 0, received: 0 };
let timer = 0;

function matches(e) {
  if (filters.action && e.action !== filters.action) return false;
  if (filters.actor && !e.actor.includes(filters.actor)) return false;
  if (filters.path && !(e.changed || []).some((c) => c.path === filters.path)) return false;
  return !filters.text || e.line.includes(filters.text);
}

function add(line) {
  const e = JSON.parse(line);
  if (!e.seq) return;
  counts.received++;
  if (stream && stream.dense && counts.head && e.seq !== counts.head + 1) counts.gaps++;
  counts.head = e.seq;
  e.line = line; // of the object only the text is kept
  e.title = titleOf(e);
  touch(e);
  delete e.object;
  delete e.scopes;
  all.add(e);
  if (matches(e)) { shown.add(e); counts.shown++; }
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
  constructor(query, follow) {
    this.query = query;
    this.follow = follow;
    this.dense = !['kind', 'object', 'cn', 'vnet', 'until'].some((name) => query[name]);
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
        if (this.more && !this.follow) { wait = 125; continue; } // a budget ended it: there is more
        if (!this.follow) { live = false; news(); return; }
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
    const q = new URLSearchParams(this.query);
    if (this.follow) q.set('follow', '1');
    const headers = { Accept: 'text/event-stream' };
    if (this.last) headers['Last-Event-ID'] = this.last;
    this.more = false;
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
      if (other) { all.clear(); shown.clear(); frozen = null; }
      if (response.status === 410 || other) { this.last = ''; counts.head = 0; counts.gaps++; }
      throw new Error(`HTTP ${response.status} ${text.slice(0, 300)}`);
    }
    broken = '';
    live = this.follow;
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
      if (this.event === 'next') this.more = true;
      else add(data);
    }
  }
}

function start(m) {
  if (stream) stream.close();
  all.clear();
  shown.clear();
  frozen = null;
  Object.assign(counts, { received: 0, shown: 0, gaps: 0, head: 0 });
  rated = { at: 0, received: 0 };
  filters = m.filters;
  live = false;
  broken = '';
  past = Boolean(m.until);
  const query = { ...m.query };
  if (m.until) { query.until = m.until; query.after = Math.max(m.floor || 0, m.until - firstLines); } else query.last = firstLines;
  stream = new Stream(query, !m.until);
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
    waiting: frozen ? counts.shown - frozen.counted : 0, touched: takeTouched(),
  });
}

const orders = {
  log: start,
  filters(m) {
    filters = m.filters;
    shown = new Queue();
    counts.shown = 0;
    frozen = null;
    for (let i = all.length - 1; i >= 0; i--) {
      const e = all.back(i);
      if (matches(e)) { shown.add(e); counts.shown++; }
    }
    news();
  },
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
    for (let low = 0, high = all.length - 1; low <= high;) {
      const middle = (low + high) >> 1;
      const e = all.back(middle);
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
start({ query: {}, filters: {} });
