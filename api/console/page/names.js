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
  }

  // learn asks for the names of ids of a kind that are not known yet. A question that fails
  // leaves them unknown: the view shows ids then.
  async learn(kind, ids) {
    if (!by[kind]) return;
    const [path, field] = by[kind];
    const missing = [...new Set(ids)].filter((id) => typeof id === 'string' && /^[0-9a-f-]{36}$/.test(id) && !this.known.has(`${kind}/${id}`));
    for (const id of missing) this.known.set(`${kind}/${id}`, '');
    for (let i = 0; i < missing.length; i += batch) {
      const some = missing.slice(i, i + batch);
      const found = await this.reader.get(path, { uuid: some.join(','), limit: batch }, this.at).catch(() => []);
      for (const o of found) this.known.set(`${kind}/${o.uuid}`, o[field] || '');
    }
  }

  of(kind, id) { return this.known.get(`${kind}/${id}`) || ''; }
}
