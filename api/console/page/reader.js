// Reader is the page's side of the worker, and of single questions to the server.

import { number } from './dom.js';

const updatesKept = 4096;
const leastMs = 100; // between two updates of the page: nobody reads faster
const clusterMs = 2000;
const changeMs = 1000; // between two readings of a view because of changes

export class Reader {
  constructor() {
    // The policy of Trusted Types has this one way to make a URL of code.
    const policy = window.trustedTypes
      ? window.trustedTypes.createPolicy('rutter', { createScriptURL: (u) => { if (u !== 'worker.js') throw new TypeError('unknown script'); return u; } })
      : { createScriptURL: (u) => u };
    this.worker = new Worker(policy.createScriptURL('worker.js'), { type: 'module' });
    this.worker.addEventListener('message', (e) => this.take(e.data));
    // A browser keeps a page that was left, with its stream, for when one comes back. It has
    // six connections to a server at most: after six such pages the next one would wait.
    window.addEventListener('pagehide', () => this.worker.terminate());
    window.addEventListener('pageshow', (e) => { if (e.persisted) location.reload(); });
    this.counts = { received: 0, shown: 0, gaps: 0, head: 0 };
    this.updates = { at: 0, ms: new Float64Array(updatesKept) }; // what each update took, the newest at at-1
    this.handlers = new Map();
    this.waiting = new Map(); // id of a question → what is done with its answer
    this.asked = 0;
    this.pending = new Map(); // by the name of the message: only the newest is drawn
    this.drawn = 0;
    this.timer = 0; // until the next frame is asked for
    this.drawing = null; // what is drawn in part
    this.cluster = null;
    this.clusterHandlers = new Set();
    this.changeHandlers = new Set();
    this.away = '';   // why the server does not answer; '': it does
    this.broken = ''; // why the stream is not read; '': it is
    this.poll();
    setInterval(() => { if (!document.hidden) this.poll(); }, clusterMs);
  }

  // close ends the stream and everything that the worker does, for good.
  close() { this.worker.terminate(); }

  // send tells the worker something.
  send(message, transfer) { this.worker.postMessage(message, transfer || []); }

  // ask asks the worker, and gives a promise of what it answers.
  ask(message) {
    const id = ++this.asked;
    this.send({ ...message, ask: id });
    return new Promise((done) => this.waiting.set(id, done));
  }

  // on has fn draw the newest message of a name, in an animation frame. If fn
  // is not done it returns its place, not 0, and is called with it in the next
  // frame; a view that comes in between begins with a message of its own.
  on(name, fn) {
    this.handlers.set(name, fn);
    this.forget(name);
    return () => { this.handlers.delete(name); this.forget(name); };
  }

  forget(name) { if (this.drawing && this.drawing.name === name) this.drawing.at = 0; }

  onCluster(fn) { this.clusterHandlers.add(fn); if (this.cluster) fn(this.cluster); return () => this.clusterHandlers.delete(fn); }

  // onChange calls fn, at most once in a second, when an entry came whose kind is one of
  // kinds (all kinds if it is not given) and which touches the object id (any, if it is
  // not given). fn gets nothing: it reads anew what it shows.
  onChange(fn, kinds, id) {
    const h = { fn, kinds: kinds && new Set(kinds), id, timer: 0, last: 0 };
    this.changeHandlers.add(h);
    return () => { clearTimeout(h.timer); this.changeHandlers.delete(h); };
  }

  // touched tells those who wait for changes.
  touched({ kinds, ids, many }) {
    for (const h of this.changeHandlers) {
      if (h.timer) continue;
      if (h.kinds && !kinds.some((k) => h.kinds.has(k))) continue;
      if (h.id && !many && !ids.some((id) => id.includes(h.id) || h.id.includes(id))) continue;
      h.timer = setTimeout(() => { h.timer = 0; h.last = performance.now(); h.fn(); }, Math.max(50, h.last + changeMs - performance.now()));
    }
  }

  onPulse(fn) { this.pulse = fn; }

  take(m) {
    if (m.ask) {
      const done = this.waiting.get(m.ask);
      this.waiting.delete(m.ask);
      if (done) done(m);
      return;
    }
    if (m.counts) this.counts = m.counts;
    if (m.is === 'log') this.broken = m.broken;
    if (m.touched) this.touched(m.touched);
    this.pending.set(m.is, m); // frames are dropped here, not entries: the worker has them all
    this.plan(m.asked);
  }

  // plan has the next frame draw, or, if it is not for one who waits, the frame
  // after leastMs.
  plan(soon) {
    if (this.planned && !(soon && this.timer)) return;
    clearTimeout(this.timer);
    this.timer = 0;
    this.planned = true;
    const wait = soon ? 0 : this.drawn + leastMs - performance.now();
    if (wait > 1) this.timer = setTimeout(() => this.frame(), wait); else this.frame();
  }

  frame() {
    this.timer = 0;
    requestAnimationFrame((now) => this.draw(now));
  }

  // draw draws one message in a frame, and of a long one a part: what is left
  // comes in the next frame, before anything that is newer.
  draw(now) {
    this.drawn = now;
    const begin = performance.now();
    if (!this.drawing) {
      const [[name, m]] = this.pending;
      this.pending.delete(name);
      this.drawing = { name, m, at: 0 };
    }
    const d = this.drawing;
    const fn = this.handlers.get(d.name);
    d.at = fn ? fn(d.m, d.at) || 0 : 0;
    if (d.at === 0) {
      this.drawing = null;
      if (d.name === 'log') this.tell(d.m);
    }
    this.updates.ms[this.updates.at++ % updatesKept] = performance.now() - begin;
    this.planned = Boolean(this.drawing) || this.pending.size > 0;
    if (this.planned) this.frame();
  }

  // tell says how the stream is, at most every two seconds: a screen reader reads it.
  tell(m) {
    const now = performance.now();
    const bad = m.broken !== '';
    const text = bad ? `not connected: ${m.broken}` : m.live ? 'live' : m.past ? 'the past' : 'connecting';
    if (this.pulse && (now - (this.told || -1e9) > 2000 || text !== this.toldText)) {
      this.told = now;
      this.toldText = text;
      this.pulse(m.live && m.rate >= 1 ? `live, ${number(Math.round(m.rate))} entries/s` : text, bad);
    }
  }

  async poll() {
    try {
      this.cluster = await this.get('/cluster');
      this.away = '';
    } catch (e) {
      this.away = e.message;
      if (this.pulse) this.pulse(`the server does not answer: ${e.message}`, true);
      return;
    }
    for (const fn of this.clusterHandlers) fn(this.cluster);
  }

  // get asks the server; at is the seq that is looked at, or 0.
  async get(path, query, at) {
    const q = new URLSearchParams(query || {});
    if (at) q.set('at', String(at));
    const text = q.toString();
    const response = await fetch(text ? `${path}?${text}` : path, { headers: { Accept: 'application/json' } });
    const body = await response.text();
    if (!response.ok) throw readable(response, body, at);
    return body ? JSON.parse(body) : null;
  }

  // lines asks for entries, or objects, one on each line.
  async lines(path, query) {
    const response = await fetch(`${path}?${new URLSearchParams(query || {})}`);
    const body = await response.text();
    if (!response.ok) throw readable(response, body, Number((query || {}).at || 0));
    return body.split('\n').filter(Boolean).map((line) => JSON.parse(line)).filter((line) => line.seq);
  }

  // state asks for objects of a kind, with their ids.
  state(query, at) { return this.lines('/log/state', at ? { ...query, at } : query); }

  async entry(seq) {
    const kept = await this.ask({ do: 'entry', seq });
    if (kept.line) return JSON.parse(kept.line);
    const lines = await this.lines('/log', { after: seq - 1, limit: 1 });
    return lines[0];
  }
}

function readable(response, body, at) {
  let message = `HTTP ${response.status}`;
  let fields = [];
  try {
    const answer = JSON.parse(body);
    const said = answer.error || answer;
    message = [said.message, said.remedy].filter(Boolean).join(': ') || message;
    fields = said.errors || [];
  } catch { /* not JSON: the status says it */ }
  if (at && fields.some((f) => f.field === 'at' && /unknown/i.test(`${f.code} ${f.message}`))) {
    message = 'This server cannot be asked about the past here: only the log goes back. Upgrade it, or go back to now.';
  } else if (fields.length) {
    message += ` (${fields.map((f) => `${f.field}: ${f.message}`).join('; ')})`;
  }
  const error = new Error(message);
  error.status = response.status;
  return error;
}
