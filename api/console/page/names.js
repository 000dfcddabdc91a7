// Names of objects that are referred to by id: a view asks for those that it shows, many
// at once, and each only once.

const batch = 100; // ids in one question

// by is where the objects of a kind are listed, and the field that people know them by.
const by = {
  network: ['/networks', 'name'], server: ['/servers', 'hostname'], vm: ['/vms', 'alias'],
  network_pool: ['/pools', 'name'], router: ['/fabric_routers', 'name'],
};

export class Names {
  constructor(reader, at) {
    this.reader = reader;
    this.at = at;
    this.known = new Map(); // kind/id → name, '' if it has none
    this.asked = new Map(); // kind/id → a promise of the answer
  }

  // learn asks for the names of ids of a kind that are not known yet, and waits for those
  // that were asked for meanwhile. A question that fails leaves them unknown: the view shows
  // ids then.
  async learn(kind, ids) {
    if (!by[kind]) return;
    const mine = [...new Set(ids)].filter((id) => typeof id === 'string' && /^[0-9a-f-]{36}$/.test(id)).map((id) => `${kind}/${id}`);
    const missing = mine.filter((key) => !this.known.has(key) && !this.asked.has(key));
    for (let i = 0; i < missing.length; i += batch) {
      const some = missing.slice(i, i + batch);
      const answer = this.read(kind, some);
      for (const key of some) this.asked.set(key, answer);
    }
    await Promise.all(mine.map((key) => this.asked.get(key)));
  }

  async read(kind, keys) {
    const [path, field] = by[kind];
    const found = await this.reader.get(path, { uuid: keys.map((key) => key.slice(kind.length + 1)).join(','), limit: batch }, this.at).catch(() => null);
    for (const key of keys) {
      this.asked.delete(key);
      if (found) this.known.set(key, '');
    }
    for (const o of found || []) this.known.set(`${kind}/${o.uuid}`, o[field] || '');
  }

  of(kind, id) { return this.known.get(`${kind}/${id}`) || ''; }
}
