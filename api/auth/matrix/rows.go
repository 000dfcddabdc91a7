package matrix

import "rutter/log"

// row makes a row.
func row(what string, c cells, own, why string) Row {
	return Row{What: what, Decisions: c, Own: own, Why: why}
}

const (
	ownObjects = "objects in its interest: itself, its VMs, its NICs and the networks that they are on, and the NIC tags, which are for all nodes; a tenant's: those with its owner_uuid"
	ownFields  = "decided in the log's order by projections/rules: its server, VMs, VMMs and NICs that were placed on it or that no other object names, and the fields that log.Rights of their kinds names"
)

// Requests are the rows of the HTTP API. Patterns are those of net/http.
func Requests() []Row {
	var rows []Row
	for _, kind := range log.Kinds() {
		rows = append(rows, kindRows(kind.Describe())...)
	}
	rows = append(rows, vmRows()...)
	rows = append(rows, logRows()...)
	rows = append(rows, clusterRows()...)
	return append(rows,
		row(NoRoute, known, "", "a path or method that there is not"),
		row(Malformed, open, "", "a request that is refused whoever sends it: every client may learn why"))
}

// kindRows are the rows for the paths of one kind, if it has any.
func kindRows(d *log.Description) []Row {
	path := d.Path
	switch {
	case path == "":
		return nil
	case d.Guarded:
		return []Row{
			row("GET /"+path, reads, "", "what holds for the whole cluster"),
			row("POST /"+path, rules, "", "operators only"),
			row("GET /"+path+"/{id}", reads, "", "as above"),
			row("GET /"+path+"/{id}/history", reads, "", "as above"),
			row("PUT /"+path+"/{id}", rules, "", "operators only"),
			row("POST /"+path+"/{id}", rules, "", "operators only"),
			row("DELETE /"+path+"/{id}", rules, "", "operators only"),
		}
	}
	put := row("PUT /"+path+"/{id}", ownWrites, ownFields, "NAPI's form of an update")
	if path == "vmms" {
		put = row("PUT /vmms/{id}", ownWrites, "VMMs on it", "an old agent's doorbell: the body is ignored")
	}
	return []Row{
		row("GET /"+path, ownReads, ownObjects, "lists are filtered"),
		row("POST /"+path, ownWrites, ownFields, "creating is for operators, and for a CN what it is the source of"),
		row("GET /"+path+"/{id}", ownReads, ownObjects, "another's object is answered as one that there is not"),
		row("POST /"+path+"/{id}", ownWrites, ownFields, "VMAPI's and CNAPI's form of an update"),
		row("DELETE /"+path+"/{id}", ownWrites, ownFields, "only its own VMs are a CN's to delete"),
		row("GET /"+path+"/{id}/history", reads, "", "what an object was includes whose it was: a CN sees the present only"),
		put,
	}
}

func vmRows() []Row {
	return []Row{
		row("GET /vms/lookup", reads, "", "search over all VMs"),
		row("POST /vmms/{id}/doorbell", ownWrites, "VMMs on it", "a ring has the server ask that CN: a CN rings for its own only"),
		row("PUT /vmms/{id}/state", writes, "", "orders to a CN are operators'"),
		row("POST /vmms/{id}/register", writes, "", "where a VM runs is decided by operators"),
		row("POST /vmms/{id}/unregister", writes, "", "where a VM runs is decided by operators"),
		row("POST /networks/{id}/nics", writes, "", "addresses are given out by operators"),
		row("POST /changes", ownWrites, ownFields, "several operations, each decided alike"),
		row("GET /write", ownWrites, ownFields, "the write stream: each change has its connection's author"),
		row("POST /write", ownWrites, ownFields, "the write stream: each change has its connection's author"),
	}
}

func logRows() []Row {
	return []Row{
		row("GET /log", reads.with(tenant, Own), "entries of objects with its owner_uuid, before and after", "the whole history of everybody; a CN has the feed"),
		row("GET /log/search", reads.with(tenant, Own), "entries of objects with its owner_uuid, before and after", "GET /log, the newest first: what may be read there may be sought here"),
		row("GET /log/state", reads, "", "the whole state, of any time"),
		row("GET /log/history", reads, "", "who had an address, of any time"),
		row("GET /log/diff", reads, "", "the whole state, of any two times"),
		row("GET /feed", cells{local: Allow, cn: Own}, "the stream of the CN that the certificate names", "a session speaks for a CN; people look at GET /cns/{id}/feed"),
		row("GET /cns", reads, "", "who is there and how far"),
		row("GET /cns/{id}", reads.with(cn, Own), "its own session", "so that a node can see how it is seen"),
		row("POST /cns/{id}/accept", rules, "", "it lets a node take away what works: operators only"),
		row("GET /cns/{id}/status", reads, "", "what is known of a CN; asking it costs the CN one answer, which it bounds"),
		row("GET /vnets/{vnet}", reads, "", "how far the CNs are with the links of a vnet"),
		row("GET /cns/{id}/feed", reads, "", "what a CN would be sent, for people; the CN itself has the feed"),
		row("GET /cns/{id}/support/{part}", rules, "", "logs, settings and goroutines of an agent: operators only"),
		row("GET /wait", reads, "", "names CNs that are late"),
		row("GET /names", ownReads, ownObjects, "others' objects are no candidates, and make no name ambiguous"),
		row("GET /lookup/vl2", reads.with(cn, Own), "vnets that one of its NICs is on", "the same that SVP tells it"),
		row("GET /lookup/vl3", reads.with(cn, Own), "vnets that one of its NICs is on", "the same that SVP tells it"),
		row("GET /trace", reads, "", "names objects on the whole way"),
	}
}

func clusterRows() []Row {
	return []Row{
		row("GET /cluster", reads, "", "names and addresses of servers"),
		row("GET /cluster/servers", reads, "", "where the servers' APIs are, for commands that ask each"),
		row("POST /cluster/members", rules, "", "a member has every byte: operators only"),
		row("DELETE /cluster/members/{id}", rules, "", "operators only"),
		row("POST /cluster/members/{id}/promote", rules, "", "operators only"),
		row("POST /cluster/members/{id}/rebuild", rules, "", "operators only"),
		row("POST /cluster/transfer", rules, "", "operators only"),
		row("GET /grants", rules.with(server, Allow).with(reader, Allow), "", "who is limited to what"),
		row("PUT /grants/{subject...}", rules, "", "who is limited to what is the operators' word"),
		row("DELETE /grants/{subject...}", rules, "", "as above"),
		row("GET /cluster/retention", reads, "", "how much is kept"),
		row("PUT /cluster/retention", rules, "", "what is deleted for ever: operators only"),
		row("GET /cluster/features", reads, "", "versions of the servers' programs"),
		row("POST /cluster/finalize", rules, "", "no older program runs after it: operators only"),
		row("GET /snapshot", rules, "", "the whole log in one file, secrets' hashes included: operators only"),
		row("GET /snapshot/schedule", reads, "", "how old the backups are; names a folder of the server"),
		row("POST /snapshot/schedule", rules, "", "it writes to a disk of the server: operators only"),
		row("GET /support/{part}", rules, "", "logs, settings and goroutines of a server: operators only"),
		row("GET /{$}", open, "", "it names paths; nothing of the cluster"),
		row("GET /ping", open, "", "whether somebody is there"),
		row("GET /livez", open, "", "whether the process lives"),
		row("GET /readyz", open, "", "whether it serves; without the reasons for those who have no certificate"),
		row("GET /status", reads, "", "head, members, versions"),
		row("GET /overview", reads, "", "names compute nodes in trouble, and who changed how much"),
		row("GET /openapi.json", open, "", "what the API is; nothing of the cluster"),
		row("GET /metrics", reads, "", "counts, and the worst compute nodes by name, so not for readers that are limited to tenants"),
		row("GET /console", reads, "", "it leads to the page"),
		row("GET /console/", reads, "", "a page that asks the API with its reader's own rights"),
	}
}

// Frames are the rows of messages on upgraded connections: "feed up NAME" and "feed
// down NAME" of package log/feed, "write up NAME" and "write down NAME" of package
// log/intake, and items of the change feed.
func Frames() []Row {
	session := cells{local: Allow, cn: Own}
	pushed := cells{local: Allow, cn: Own, server: Allow, operator: Allow, reader: Allow, foreign: Allow}
	up := func(name, own, why string) Row { return row("feed up "+name, session, own, why) }
	down := func(name, own, why string) Row { return row("feed down "+name, pushed, own, why) }
	rows := []Row{
		up("hello", "the CN that the certificate names", "who a stream is of is not a matter of words"),
		up("watermark", "of its session", "soft state of the CN itself"),
		up("report", "of its session", "not read in this version"),
		up("ping", "of its session", "that it is there"),
		up("again", "a scope that it holds", "what is not held is not sent"),
		up("response", "to what it was asked", "answers carry the number of a request of this connection"),
		up("ring", "VMMs that are on it", "its own doorbells only"),
		up("condition", "of its session", "soft state of the CN itself"),
		up("inventory", "its VMs", "written as its own, and decided as such in the log's order"),
		down("welcome", "head and version", "no object"),
		down("entry", "events of a scope that it holds", "the interest before or after the event"),
		down("bookmark", "digests of scopes that it holds", "its place"),
		down("scope_begin", "scopes in its interest", "a scope as a whole"),
		down("object", "objects of a scope in its interest", "a scope as a whole"),
		down("scope_end", "scopes in its interest", "a scope as a whole"),
		down("scope_dropped", "scopes that it held", "names what it had"),
		down("reset", "why its cursor is of no use", "no object"),
		down("drain", "why it is sent away", "no object"),
		down("pong", "the head", "no object"),
		down("tell", "a seq that somebody waits for", "no object"),
		down("request", "about its own VMMs", "what operators ask it"),
		row("write up change", cells{local: Allow, operator: Allow, cn: Own, foreign: Writer}, ownFields, "as POST /changes"),
		row("write up ping", known, "", "that it is there"),
		row("log line", reads.with(tenant, Own), "entries of objects with its owner_uuid", "GET /log, each line"),
		row("changefeed item", reads, "", "Triton's change feed names every object"),
		row("write down welcome", known, "", "whether this server leads"),
		row("write down result", known, "", "of its own change"),
		row("write down failed", known, "", "of its own change"),
		row("write down drain", known, "", "why it is sent away"),
		row("write down pong", known, "", "that it is there"),
	}
	return rows
}
