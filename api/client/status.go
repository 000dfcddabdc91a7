package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rutter/log"
)

// Status is the answer to GET /status: a server's description of itself.
type Status struct {
	Version  string         `json:"version"`
	Uptime   string         `json:"uptime"`
	Ready    bool           `json:"ready"`
	NotReady string         `json:"not_ready,omitempty"` // why
	Head     log.Cursor     `json:"head"`
	Time     log.Time       `json:"time"` // of the last change
	Floor    log.Seq        `json:"floor"`
	Feeds    int            `json:"feeds"`
	Objects  map[string]int `json:"objects"` // by kind
	ID       string         `json:"id"`
	State    string         `json:"state"` // Leader, Follower, Candidate
	LeaderID string         `json:"leader_id"`
	Term     uint64         `json:"term"`
	Applied  uint64         `json:"applied"` // raft index
	Commit   uint64         `json:"commit"`  // raft index
	Members  []Member       `json:"members"`
	Alarms   []string       `json:"alarms,omitempty"` // what an operator must act on
	Detail   Detail         `json:"detail"`

	Known           uint32    `json:"feature_known,omitempty"`   // newest feature version that its program knows; 0: an older program, which does not say it
	Warnings        []string  `json:"warnings,omitempty"`        // what an operator must act on beside the alarms
	CertificateEnds time.Time `json:"certificate_ends,omitzero"` // the first of its certificates; zero: it has none
	Zone            string    `json:"zone,omitempty"`            // of the server; "": none
}

// Detail is the store's part of the answer; a server may send more fields.
type Detail struct {
	Address string `json:"address"` // of its peer port
	// Replica: it follows without a vote, Lag behind the leader.
	Replica   bool          `json:"replica,omitempty"`
	Lag       time.Duration `json:"replica_lag_ns,omitempty"`
	Durable   log.Seq       `json:"durable"` // in changes.db, synced
	Feature   uint32        `json:"feature_version"`
	Diverged  string        `json:"diverged,omitempty"` // why it serves nothing
	RaftBytes int64         `json:"raft_log_bytes"`
	DBBytes   int64         `json:"changes_db_bytes"`
	DiskFree  int64         `json:"disk_free_bytes"`
	DiskBytes int64         `json:"disk_bytes"`
	Waiting   int           `json:"persister_lag_events"` // applied and not yet in changes.db

	Comparisons uint64 `json:"comparisons_total"` // with the other servers' states
	Differences uint64 `json:"differences_total"` // times that this server stopped to serve

	Clock *Clock `json:"clock,omitempty"` // nil from an older server
}

// Clock is a server's knowledge of the time, and of the other servers' clocks.
// Durations are in nanoseconds.
type Clock struct {
	Now    log.Time      `json:"now"`       // by its own clock
	Agreed log.Time      `json:"agreed"`    // what the servers agree on
	Offset time.Duration `json:"offset_ns"` // of its own clock, from the agreed one
	Ahead  time.Duration `json:"ahead_ns"`  // of the log's time, before the agreed clock
	Judged bool          `json:"judged"`    // a majority of the known clocks agrees
	Bound  time.Duration `json:"bound_ns"`  // how far off a clock may be
	Others []OtherClock  `json:"others"`    // the other servers'
	Alarms []string      `json:"alarms"`    // what an operator must act on
}

// OtherClock is another server's clock.
type OtherClock struct {
	ID     string        `json:"id"`
	Known  bool          `json:"known"`
	Wrong  bool          `json:"wrong,omitempty"`
	Offset time.Duration `json:"offset_ns"` // from the agreed clock
	Doubt  time.Duration `json:"doubt_ns"`  // of the measurement
	Error  string        `json:"error,omitempty"`
}

// Member is one server of the cluster.
type Member struct {
	ID      string `json:"id"`
	Address string `json:"address"` // of its peer port
	Voter   bool   `json:"voter"`
	Leader  bool   `json:"leader"`
}

// Status asks the server that answered last, or the next one.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	_, err := c.do(ctx, request{method: http.MethodGet, path: "/status"}, &s)
	return s, err
}

// StatusOf asks one server, once, also if it is not ready.
func (c *Client) StatusOf(ctx context.Context, server string) (Status, error) {
	var s Status
	u, err := url.Parse(server)
	if err != nil {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	defer c.watch(u)()
	response, err := c.send(ctx, u, request{method: http.MethodGet, path: "/status"})
	if err != nil {
		return s, err
	}
	defer response.Body.Close()
	return s, readAnswer(response, &s)
}

// headerZone is the header of GET /readyz with the zone of the server.
const headerZone = "Rutter-Zone"

// Zone asks one server, once, for its zone ("": it has none, or its program does not know
// zones), and whether it is ready: else the error says why.
func (c *Client) Zone(ctx context.Context, server string) (zone string, err error) {
	u, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	response, err := c.send(ctx, u, request{method: http.MethodGet, path: "/readyz"})
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	_, err = bodyOf(response)
	return response.Header.Get(headerZone), err
}

// Mapping is the answer to a lookup: the owner of an address of a vnet, and its
// location.
type Mapping struct {
	MAC  log.MAC    `json:"mac"`
	CN   log.UUID   `json:"cn_uuid"`
	Addr netip.Addr `json:"underlay_ip"`
	Port uint16     `json:"underlay_port"`
}

// VL2 asks for the location of a MAC of a vnet, VL3 for the owner of an address.
func (c *Client) VL2(ctx context.Context, vnet uint32, mac log.MAC) (Mapping, error) {
	return c.VL2At(ctx, vnet, mac, "")
}

// VL3 asks for the owner and the location of an address of a vnet.
func (c *Client) VL3(ctx context.Context, vnet uint32, ip netip.Addr) (Mapping, error) {
	return c.VL3At(ctx, vnet, ip, "")
}

// VL2At and VL3At are VL2 and VL3 after the entry at, a seq or a time; "" is now.
func (c *Client) VL2At(ctx context.Context, vnet uint32, mac log.MAC, at string) (Mapping, error) {
	return c.lookup(ctx, "/lookup/vl2", vnet, "mac", mac.String(), at)
}

// VL3At is VL3 in the past: see VL2At.
func (c *Client) VL3At(ctx context.Context, vnet uint32, ip netip.Addr, at string) (Mapping, error) {
	return c.lookup(ctx, "/lookup/vl3", vnet, "ip", ip.String(), at)
}

func (c *Client) lookup(ctx context.Context, path string, vnet uint32, name, value, at string) (Mapping, error) {
	var m Mapping
	query := url.Values{"vnet": {strconv.FormatUint(uint64(vnet), 10)}, name: {value}}
	if at != "" {
		query.Set("at", at)
	}
	_, err := c.do(ctx, request{method: http.MethodGet, path: path, query: query}, &m)
	return m, err
}

// Session is a CN's connection, as the server that holds it sees it.
type Session struct {
	Server      string   `json:"server"` // id of the one that answered
	CN          log.UUID `json:"cn_uuid"`
	Hostname    string   `json:"hostname"`
	Incarnation uint64   `json:"incarnation"`
	Session     uint64   `json:"session"`
	Remote      string   `json:"remote"`
	Since       log.Time `json:"connected_since"`
	Heard       log.Time `json:"heard,omitzero"` // of the last watermark
	Sent        log.Seq  `json:"sent"`           // the last bookmark
	Applied     log.Seq  `json:"applied"`
	Programmed  log.Seq  `json:"programmed"`
	Lag         log.Seq  `json:"lag_entries"` // entries between the head and Applied
	Links       uint32   `json:"links"`
	Neighbours  uint32   `json:"neighbours"`
	FDB         uint32   `json:"fdb"`
	Failing     uint32   `json:"failing"`
	Reached     log.Seq  `json:"reached"` // Programmed, but for the objects that wait
	Waiting     int      `json:"waiting"` // objects that barriers of changes that concern them wait for
	Idle        int      `json:"idle"`    // links that are not there because their VMs are not to run
	// Waits are the objects of Waiting, then those of Idle, at most 32 of both.
	Waits      []Waiting `json:"waits,omitempty"`
	Healed     uint64    `json:"healed"`
	Drift      string    `json:"drift,omitempty"` // of Healed: what was last repaired, one per line; not in EverySession
	BehindMS   int64     `json:"lag_ms"`          // age of the oldest entry that is not applied
	DigestOK   bool      `json:"digest_ok"`       // the CN's objects match the log
	Checked    log.Seq   `json:"digest_checked"`  // seq of the last such check
	Mismatches uint32    `json:"digest_mismatches"`
	Repaired   uint32    `json:"scopes_repaired"`
	Resets     uint32    `json:"resets"`
	LastReset  string    `json:"last_reset,omitempty"`
	Gone       bool      `json:"gone,omitempty"`     // it has ended, or its server does not answer
	HeardMS    *int64    `json:"heard_ms,omitempty"` // since the last sign; only in EverySession
	Hold       *Hold     `json:"hold,omitempty"`     // what the CN holds back of the log
	Trouble    string    `json:"trouble,omitempty"`  // what else an operator must act on there, one per line; not in EverySession
}

// Sessions returns the sessions with one server.
func (c *Client) Sessions(ctx context.Context, server string) ([]Session, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.AttemptTimeout)
	defer cancel()
	defer c.watch(u)()
	response, err := c.send(ctx, u, request{method: http.MethodGet, path: "/cns"})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var sessions []Session
	return sessions, readAnswer(response, &sessions)
}

// Raw requests path, which may have a query, and returns the body unchanged. It is for
// commands that print the answer.
func (c *Client) Raw(ctx context.Context, method, path string, body []byte) (json.RawMessage, error) {
	raw, _, err := c.Forward(ctx, method, path, body)
	return raw, err
}

// Forward is Raw, and returns the header of the answer too, for programs that pass it on.
func (c *Client) Forward(ctx context.Context, method, path string, body []byte) (json.RawMessage, http.Header, error) {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return nil, nil, fmt.Errorf("client: %s: %w", path, err)
	}
	var raw json.RawMessage
	header, err := c.do(ctx, request{method: method, path: path, query: query, body: body}, &raw)
	return raw, header, err
}
