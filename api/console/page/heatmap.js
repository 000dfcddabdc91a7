// HeatMap is the worker's part of the map of compute nodes: it asks for their
// sessions, judges each, and paints one square for each on the page's canvas.

const pollMs = 2000;
const serversMs = 30000;
const page = 1000; // objects in one answer of the server
const worst = 25;  // nodes that stand in the table

// Grades, from good to bad. Each has a lightness of its own, so that they can
// be told apart without colours.
export const grades = ['current', 'behind', 'late', 'drift', 'gone', 'never'];
const lateMs = 1000;
const lateEntries = 1000;

function gradeOf(node) {
  const s = node.session;
  if (!s) return 5;
  if (s.gone) return 4;
  if (s.failing > 0 || (!s.digest_ok && s.digest_mismatches > 0)) return 3;
  if (s.lag_ms > lateMs || s.lag_entries > lateEntries) return 2;
  return s.programmed < s.applied || s.lag_entries > 0 ? 1 : 0;
}

function whyOf(node) {
  const s = node.session;
  if (!s) return 'no session since the leader was elected';
  if (s.gone) return 'its session has ended';
  if (s.failing > 0) return `${s.failing} steps fail in its kernel`;
  if (!s.digest_ok && s.digest_mismatches > 0) return `${s.digest_mismatches} scopes differ from the log`;
  if (s.lag_entries > 0) return `${s.lag_entries} entries behind, ${s.lag_ms} ms`;
  if (s.programmed < s.applied) return 'has it all, and programs it';
  return s.healed > 0 ? `up to date; ${s.healed} differences were put right` : 'up to date';
}

// shade is the place of a node between 0 (good) and 1, for the mode that is shown.
function shade(node, mode) {
  const s = node.session;
  if (!s || s.gone) return -1;
  if (mode === 'drift') return Math.min(1, Math.log2(1 + (s.healed || 0) + 4 * s.digest_mismatches + 16 * s.failing) / 10);
  return Math.min(1, Math.log2(1 + Math.max(s.lag_entries, s.lag_ms / 10)) / 14);
}

export class HeatMap {
  constructor(post) {
    this.post = post;
    this.nodes = [];
    this.mode = 'lag';
  }

  open(m) {
    this.canvas = m.canvas;
    this.context = m.canvas.getContext('2d');
    this.resize(m);
    this.named = 0;
    this.poll();
    this.timer = setInterval(() => this.poll(), pollMs);
  }

  close() {
    clearInterval(this.timer);
    this.canvas = null;
  }

  setMode(mode) { this.mode = mode; this.paint(); }

  resize(m) {
    this.width = m.width;
    this.scale = m.scale;
    this.dark = m.dark;
    this.paint();
  }

  nodeAt(index) {
    const node = this.nodes[index];
    return node ? { ...node, grade: grades[node.grade], why: whyOf(node), of: this.nodes.length } : null;
  }

  async poll() {
    if (this.polling) return;
    this.polling = true;
    try {
      await this.read();
      this.paint();
      this.tell('');
    } catch (e) {
      this.tell(e.message);
    }
    this.polling = false;
  }

  async json(path) {
    const response = await fetch(path);
    if (!response.ok) throw new Error(`HTTP ${response.status} for ${path}`);
    return response.json();
  }

  async read() {
    if (performance.now() - this.named > serversMs || !this.servers) {
      const servers = [];
      for (let offset = 0; ; offset += page) {
        const some = await this.json(`/servers?limit=${page}&offset=${offset}`);
        for (const s of some) servers.push({ uuid: s.uuid, hostname: s.hostname, status: s.status });
        if (some.length < page) break;
      }
      this.servers = servers;
      this.named = performance.now();
    }
    const here = await this.json('/cns');
    const sessions = await this.json('/cns?everywhere=1').catch(() => here);
    const byCN = new Map(sessions.map((s) => [s.cn_uuid, s]));
    for (const s of here) { // only the server of a session knows what was put right
      const known = byCN.get(s.cn_uuid);
      if (known && known.session === s.session) Object.assign(known, { healed: s.healed, drift: s.drift });
    }
    const nodes = this.servers.map((s) => ({ ...s, session: byCN.get(s.uuid) || null }));
    const named = new Set(this.servers.map((s) => s.uuid));
    for (const s of sessions) if (!named.has(s.cn_uuid)) nodes.push({ uuid: s.cn_uuid, hostname: s.hostname || '', status: '', session: s });
    for (const n of nodes) n.grade = gradeOf(n);
    nodes.sort((a, b) => a.hostname.localeCompare(b.hostname, 'en', { numeric: true }) || (a.uuid < b.uuid ? -1 : 1));
    this.nodes = nodes;
  }

  tell(broken) {
    const numbers = grades.map(() => 0);
    for (const n of this.nodes) numbers[n.grade]++;
    const bad = this.nodes.map((n, index) => ({ index, n })).filter((x) => x.n.grade > 0)
      .sort((a, b) => b.n.grade - a.n.grade || ((b.n.session || {}).lag_entries || 0) - ((a.n.session || {}).lag_entries || 0)).slice(0, worst)
      .map(({ index, n }) => ({ index, uuid: n.uuid, hostname: n.hostname, grade: grades[n.grade], why: whyOf(n) }));
    this.post({ is: 'cns', numbers, worst: bad, total: this.nodes.length, cols: this.cols, cell: this.cell, broken });
  }

  colour(node) {
    if (node.grade === 5) return this.dark ? '#3a4148' : '#c9cfd4';
    if (node.grade === 4) return this.dark ? '#7a2e86' : '#8e3a9c';
    if (node.grade === 3 && this.mode === 'lag') return '#d0342c';
    const x = shade(node, this.mode);
    const hue = 170 - 165 * x;
    return this.dark ? `hsl(${hue} 65% ${30 + 32 * x}%)` : `hsl(${hue} 70% ${62 - 22 * x}%)`;
  }

  paint() {
    if (!this.canvas || !this.width) return;
    const n = Math.max(1, this.nodes.length);
    // The largest square with which all fit into a field of 5:2, within bounds.
    this.cell = Math.max(4, Math.min(36, Math.floor(Math.sqrt(this.width * this.width * 0.4 / n))));
    this.cols = Math.max(1, Math.floor(this.width / this.cell));
    const height = Math.max(1, Math.ceil(n / this.cols)) * this.cell;
    const w = Math.round(this.width * this.scale), h = Math.round(height * this.scale);
    if (this.canvas.width !== w || this.canvas.height !== h) { this.canvas.width = w; this.canvas.height = h; }
    const c = this.context;
    c.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    c.clearRect(0, 0, this.width, height);
    const side = this.cell > 6 ? this.cell - 2 : this.cell - 1;
    this.nodes.forEach((node, i) => {
      const x = (i % this.cols) * this.cell, y = Math.floor(i / this.cols) * this.cell;
      c.fillStyle = this.colour(node);
      c.fillRect(x, y, side, side);
      if ((node.grade === 3 || node.grade === 4) && side >= 8) { // a mark that needs no colour
        c.strokeStyle = '#fff';
        c.lineWidth = 1.5;
        c.beginPath();
        c.moveTo(x + 3, y + side - 3);
        c.lineTo(x + side - 3, y + 3);
        c.stroke();
      }
    });
  }
}
