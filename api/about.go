package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"rutter/api/auth/matrix"
	"rutter/api/backend"
	"rutter/api/internal/logserver"
	"rutter/api/internal/nodes"
	"rutter/api/internal/openapi"
	"rutter/api/internal/overview"
	"rutter/api/vmm"
	"rutter/log"
	logquery "rutter/log/query"
	"rutter/projections/desired"
	"rutter/projections/naming"
)

// Sections of docs/api.md, in its order. Those of compute nodes are in package nodes.
const (
	aboutObjects = "Objects"
	aboutChanges = "Several changes at once"
	aboutVMMs    = "VMMs"
	aboutLog     = "The log"
	aboutLookups = "Lookups"
	aboutCluster = "The cluster"
	aboutHealth  = "Health"
)

const (
	linesMedia = "application/x-ndjson"
	textMedia  = "text/plain"
	pageMedia  = "text/html"
)

// logQuery are the parameters of GET /log.
var logQuery = append(logquery.Names(), "after", "cursor", "follow", "limit", "last")

// about says what each endpoint answers, by METHOD /PATTERN. Those of the kinds are made by
// aboutKind.
var about = map[string]openapi.About{
	"GET /vms/lookup":          {Section: aboutObjects, Answers: "the VMs for which each NAME=VALUE holds: fields, `nics.*.FIELD`, `~PATTERN`; with `unique`, `fields`, `limit`, `at`", Query: []string{"unique", "fields", "limit", "at"}, Answer: []map[string]json.RawMessage{}},
	"POST /networks/{id}/nics": {Section: aboutObjects, Answers: "200 with a new NIC on the network, with an address of its provision range", Query: nodes.Waiting, Body: openapi.Object{Kind: log.KindNIC, Update: true}, Answer: new(log.NIC)},
	"PUT /vmms/{id}":           {Section: aboutObjects, Answers: "204: a doorbell of older agents; the body is ignored", Status: http.StatusNoContent},

	"POST /changes": {Section: aboutChanges, Answers: "`{\"ops\": [{\"action\", \"kind\", \"id\", \"if_match\", \"if_seq\", \"object\"}]}`, and `\"reverts\"` (as in `\"#1042,#1050-#1060\"`) if it takes back entries, all or none: `change_id`, `first`, `last`, `events` and `ids`", Query: nodes.Waiting, Body: changeForm{}, Answer: resultForm{}},
	"GET /write":    {Section: aboutChanges, Answers: "101: the connection becomes a write stream (package `log/intake`)", Status: http.StatusSwitchingProtocols},
	"POST /write":   {Section: aboutChanges, Answers: "the same", Status: http.StatusSwitchingProtocols},

	"POST /vmms/{id}/doorbell":   {Section: aboutVMMs, Answers: "202 at once: the server asks the compute node for the state; `cn` names the node", Query: []string{"cn"}, Status: http.StatusAccepted},
	"PUT /vmms/{id}/state":       {Section: aboutVMMs, Answers: "the result of an order to the node: `{\"state\": {\"type\": \"running\"}}`, stopped, reboot or migration_target", Body: map[string]json.RawMessage{}, Answer: vmm.Outcome{}},
	"POST /vmms/{id}/register":   {Section: aboutVMMs, Answers: "the result: `{\"instance_id\", \"sled_id\"}` says which VM runs where", Body: openapi.Object{Kind: log.KindVMM}, Answer: vmm.Outcome{}},
	"POST /vmms/{id}/unregister": {Section: aboutVMMs, Answers: "the result", Answer: vmm.Outcome{}},

	"GET /log":         {Section: aboutLog, Answers: "entries as lines of JSON, as server-sent events (`Accept: text/event-stream`) or in the binary form; `after`, `since`, `until`, `last`, `follow`, `limit` and the filters of `rutter log`; the cursor to continue from is in `Rutter-Cursor`", Query: logQuery, Answer: log.Line{}, Media: linesMedia},
	"GET /log/search":  {Section: aboutLog, Answers: "the newest entries that the filters of `GET /log` and `text` (anywhere in the line of the entry) select, in answers of bounded cost: `entries` (at most `limit`, the newest first; none with `count`), how many were `looked` at and `found`, and `next`, which is sent as `before` to go on; without `next` nothing older is left", Query: logserver.SearchNames, Answer: logserver.SearchForm{}},
	"GET /log/state":   {Section: aboutLog, Answers: "the objects at a seq as lines of JSON: `at`, `kind`, `object`, `cn`, `vnet`, `offset`, `limit`; `Rutter-Digest` is that of the whole state", Query: []string{"at", "kind", "object", "cn", "vnet", "offset", "limit"}, Answer: stateLine{}, Media: linesMedia},
	"GET /log/history": {Section: aboutLog, Answers: "the entries about one object as lines, by an index: `kind`, `object`, `after`, `limit`", Query: []string{"kind", "object", "after", "limit"}, Answer: log.Line{}, Media: linesMedia},
	"GET /log/diff":    {Section: aboutLog, Answers: "which objects and links differ between two seqs: `from`, `to`, `cn` or `vnet`", Query: []string{"from", "to", "cn", "vnet"}, Answer: diffForm{}},

	"GET /lookup/vl2": {Section: aboutLookups, Answers: "the node and the underlay address of a MAC: `vnet`, `mac`, `at`", Query: []string{"vnet", "mac", "at"}, Answer: lookupForm{}},
	"GET /lookup/vl3": {Section: aboutLookups, Answers: "the MAC, the node and the underlay address of an IP: `vnet`, `ip`, `at`", Query: []string{"vnet", "ip", "at"}, Answer: lookupForm{}},
	"GET /names":      {Section: aboutLookups, Answers: "the objects that `name` means, at most ten, with `more` if there are others: `{\"found\": [{\"kind\", \"id\", \"name\", \"owner_uuid\", \"by\", \"etag\", \"vnet_id\"}]}`; `kind` (several separated by commas), `at`", Query: []string{"name", "kind", "at"}, Answer: naming.Found{}},
	"GET /trace":      {Section: aboutLookups, Answers: "step by step why one VM can reach another: `from`, `to`, `at`; each finding has one of the codes of [trace.md](trace.md); with `kernels`, what the kernels of both nodes have, asked of their agents, and which counters rose within `watch_ms` (1000; up to 10000)", Query: []string{"from", "to", "at", "kernels", "watch_ms"}, Answer: desired.Trace{}},

	"GET /cluster":                       {Section: aboutCluster, Answers: "the servers, and which one leads, as this server sees it", Answer: backend.Status{}},
	"GET /cluster/servers":               {Section: aboutCluster, Answers: "each server of the cluster with the URL of its API and its `zone`, as the servers say to each other; one that has no vote (`voter`) is a replica; `seq` is the head of its log, and `replica_lag_ns` how far a replica is behind the leader, in nanoseconds; `problem` if it did not say it now", Answer: []Place{}},
	"POST /cluster/members":              {Section: aboutCluster, Answers: "the cluster with the new server: `{\"id\", \"address\", \"non_voter\"}`", Body: memberForm{}, Answer: backend.Status{}},
	"DELETE /cluster/members/{id}":       {Section: aboutCluster, Answers: "the cluster without the server", Answer: backend.Status{}},
	"POST /cluster/members/{id}/promote": {Section: aboutCluster, Answers: "the cluster: the server votes", Answer: backend.Status{}},
	"POST /cluster/members/{id}/rebuild": {Section: aboutCluster, Answers: "the cluster: the server replaces its state by that of another server", Answer: backend.Status{}},
	"POST /cluster/transfer":             {Section: aboutCluster, Answers: "the cluster: another server leads, the one of `{\"id\"}` if it is given", Body: memberForm{}, Answer: backend.Status{}},
	"GET /cluster/retention":             {Section: aboutCluster, Answers: "how much of the log is kept, and with `age`, `events` or `bytes` what those values would delete", Query: []string{"age", "events", "bytes"}, Answer: planForm{}},
	"PUT /cluster/retention":             {Section: aboutCluster, Answers: "the same, after it is set: `{\"age\", \"events\", \"bytes\"}`", Body: retentionForm{}, Answer: planForm{}},
	"GET /cluster/features":              {Section: aboutCluster, Answers: "the feature version, what each server knows of it, and why it is not higher", Answer: ClusterFeatures{}},
	"POST /cluster/finalize":             {Section: aboutCluster, Answers: "the same, after every server agreed to the highest version that all know: the upgrade cannot be taken back", Answer: ClusterFeatures{}},
	"GET /snapshot":                      {Section: aboutCluster, Answers: "the whole store as one file", Media: "application/octet-stream"},
	"GET /snapshot/schedule":             {Section: aboutCluster, Answers: "the backups that this server makes by its settings: the newest, when the next one is due, and what is wrong", Answer: BackupStatus{}},
	"POST /snapshot/schedule":            {Section: aboutCluster, Answers: "202: a backup begins; the counts of `GET` tell when it has ended", Answer: BackupStatus{}, Status: http.StatusAccepted},
	"GET /grants":                        {Section: aboutCluster, Answers: "the grants, as a list", Answer: openapi.List(log.KindGrant)},
	"PUT /grants/{subject...}":           {Section: aboutCluster, Answers: "200 with the grant: `{\"owner_uuids\"}` of a reader, `{\"read\", \"write\"}` of a program without a certificate", Body: openapi.Object{Kind: log.KindGrant, Update: true}, Answer: new(log.Grant)},
	"DELETE /grants/{subject...}":        {Section: aboutCluster, Answers: "204", Status: http.StatusNoContent},

	"GET /support/{part}": {Section: aboutHealth, Answers: "what this server says of itself: `logs`, `settings`, `goroutines`, `heap`, `runtime`, `status`, `readyz` or `metrics`, without secrets", Media: "application/octet-stream"},
	"GET /{$}":            {Section: aboutHealth, Answers: "where to begin: paths and pages, as JSON; 302 to `/console/` for a browser (`Accept: text/html`)", Answer: rootForm{}},
	"GET /ping":           {Section: aboutHealth, Answers: "NAPI's answer: 503 until this server can serve", Answer: pingForm{}},
	"GET /livez":          {Section: aboutHealth, Answers: "`ok` while the process runs", Media: textMedia},
	"GET /readyz":         {Section: aboutHealth, Answers: "`ok`, or 503 and why not, which includes that SVP's mappings are not read yet, and that a replica lags; the zone of the server is in `Rutter-Zone`; `verbose` adds everything that an operator must act on", Query: []string{"verbose"}, Media: textMedia},
	"GET /status":         {Section: aboutHealth, Answers: "version, head, floor, feeds, counts of objects, and the content of `/cluster`", Answer: statusForm{}},
	"GET /metrics":        {Section: aboutHealth, Answers: "[metrics](metrics.md), in the form of Prometheus", Media: textMedia},
	"GET /openapi.json":   {Section: aboutHealth, Answers: "this API as an OpenAPI 3.1 document, made from the table of routes and the table of kinds", Answer: map[string]json.RawMessage{}},
	"GET /console":        {Section: aboutHealth, Answers: "301: it leads to `/console/`", Status: http.StatusMovedPermanently},
	"GET /console/":       {Section: aboutHealth, Answers: "the console, an HTML page", Media: pageMedia},
	"GET /overview":       {Section: aboutHealth, Answers: "what is wrong now, each with what to do; compute nodes by state; what changed in the last hour by kind and by actor; an hour of writes, refused writes, the time to the kernel and nodes behind. One answer is made in a second, for all clients", Answer: overview.Form{}},
}

// aboutKind describes an endpoint of a kind's own paths; ok is false if it is none.
func aboutKind(k *kindRoute, method, rest string) (a openapi.About, ok bool) {
	a = openapi.About{Section: aboutObjects}
	object := log.NewObject(k.kind)
	switch method + " " + rest {
	case "GET ":
		a.Answers, a.Answer = "the objects that match, as a list", openapi.List(k.kind)
		a.Query = append(k.filterNames(), "limit", "offset", "at")
	case "POST ":
		a.Answers, a.Query = "200 with the object that was created", nodes.Waiting
		a.Body, a.Answer = openapi.Object{Kind: k.kind}, object
	case "GET /{id}":
		a.Answers, a.Query, a.Answer = "the object, its `Etag`; 304 if it has not changed", []string{"at"}, object
	case "PUT /{id}":
		a.Answers, a.Query = "200 with the object; the fields that are sent are set", nodes.Waiting
		a.Body, a.Answer = openapi.Object{Kind: k.kind, Update: true}, object
	case "POST /{id}":
		a.Answers, a.Query = "the same, for clients of VMAPI and CNAPI", nodes.Waiting
		a.Body, a.Answer = openapi.Object{Kind: k.kind, Update: true}, object
	case "DELETE /{id}":
		a.Answers, a.Query, a.Status = "204", nodes.Waiting, http.StatusNoContent
	case "GET /{id}/history":
		a.Answers, a.Answer, a.Media = "`GET /log` of this one object", log.Line{}, linesMedia
		a.Query = slices.DeleteFunc(slices.Clone(logQuery), func(name string) bool { return name == "kind" || name == "object" })
	default:
		return a, false
	}
	return a, true
}

// aboutOf describes an endpoint.
func aboutOf(method, pattern string, ofNodes map[string]openapi.About) openapi.About {
	name := method + " " + pattern
	if a, ok := about[name]; ok {
		return a
	}
	for _, k := range kinds {
		if rest, of := strings.CutPrefix(pattern, "/"+k.path); of {
			if a, ok := aboutKind(k, method, rest); ok {
				return a
			}
		}
	}
	return ofNodes[name]
}

// Described returns all endpoints of this package with what is known of them, sorted by
// their paths.
func (s *Server) Described() []openapi.Endpoint {
	ofNodes := nodes.Abouts()
	var all []openapi.Endpoint
	for _, route := range s.table() {
		e := openapi.Endpoint{Method: route.Method, Pattern: route.Pattern, About: aboutOf(route.Method, route.Pattern, ofNodes)}
		if row := matrix.Find(route.String()); row != nil {
			e.Who = row.WhoMay()
		}
		all = append(all, e)
	}
	slices.SortStableFunc(all, func(a, b openapi.Endpoint) int { return strings.Compare(a.Pattern, b.Pattern) })
	return all
}
