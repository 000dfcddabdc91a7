package mutants

import "rutter/integration/simulate/history"

// nodeBounds are mutants of what is bounded, and of connections whose certificates are revoked.
var nodeBounds = []Mutant{
	{
		Name: "ring-never-cut", File: "raftstore/internal/changesdb/ring.go",
		Old:    "r.First <= durable && (r.n >= r.MaxEntries || r.bytes >= r.MaxBytes)",
		New:    "r.First <= durable && r.n >= 64*r.MaxEntries",
		Breaks: "the entries in memory are many more than configured",
		Rules:  []string{"P2"},
	},
	{
		Name: "ring-of-what-is-not-known-durable", File: "raftstore/decide.go",
		Old:    "a.store.ring.Push(d.slots[i], durable)",
		New:    "a.store.ring.Push(d.slots[i], durable/2)",
		Breaks: "entries stay in memory long after changes.db has them",
		Rules:  []string{"P2"},
	},
	{
		Name: "agent-lists-all-failures", File: "agent/reconcile.go",
		Old:    "for _, x := range list[:min(len(list), maxListed)] {",
		New:    "for _, x := range list {",
		Breaks: "a node's report of itself grows with the number of its objects that fail",
		Rules:  []string{"W1"},
		Themes: []history.Theme{history.Nodes},
	},
	{
		Name: "revoked-connection-stays", File: "api/auth/tlsgate/keeper.go",
		Old:    "if why := revoked.Covers(c.leaf, c.id); why != \"\" {",
		New:    "if why := revoked.Covers(c.leaf, c.id); false {",
		Breaks: "open connections stay when their certificates are revoked",
		Rules:  []string{"K1"},
		Themes: []history.Theme{history.Trust},
		Own:    []string{"api/auth/tlsgate.TestRevokedWhileOpen"},
	},
	{
		Name: "revoked-connects-again", File: "api/auth/pki/trust.go",
		Old:    "if why := t.revoked.Covers(leaf, id); why != \"\" {",
		New:    "if why := t.revoked.Covers(leaf, id); why != \"\" && id.Role != matrix.CN {",
		Breaks: "a node whose certificate is revoked connects again",
		Rules:  []string{"K1"},
		Themes: []history.Theme{history.Trust},
		Own:    []string{"api/auth/pki.TestVerify"},
	},
	{
		Name: "first-revocations-only", File: "cmd/rutter/trust/follower.go",
		Old:    "if now != f.revoked {",
		New:    "if f.revoked.cluster.IsZero() {",
		Breaks: "a server hears only of revocations of before its start",
		Rules:  []string{"K1"},
		Themes: []history.Theme{history.Trust},
	},
}
