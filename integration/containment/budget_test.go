package containment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"rutter/api/auth/matrix"
	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// person is a client with a certificate that speaks HTTP to one server.
type person struct {
	t    *testing.T
	http *http.Client
	url  string
}

func newPerson(t *testing.T, c *bench.Cluster, s *bench.Server, who matrix.Identity) *person {
	t.Helper()
	dial, err := c.Authority.Dialer(who)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialTLSContext: dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &person{t: t, http: &http.Client{Transport: transport}, url: s.URL}
}

// ask returns an answer with its body read.
func (p *person) ask(method, path string, body any) (*http.Response, []byte) {
	p.t.Helper()
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			p.t.Fatal(err)
		}
		sent = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(patience(p.t), method, p.url+path, sent)
	if err != nil {
		p.t.Fatal(err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	answer, err := p.http.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return answer, got
}

// metric returns the value of a line of /metrics that begins with name.
func (p *person) metric(name string) float64 {
	p.t.Helper()
	_, body := p.ask(http.MethodGet, "/metrics", nil)
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				p.t.Fatal(err)
			}
			return n
		}
	}
	p.t.Fatalf("/metrics has no %s", name)
	return 0
}

// lines reads an answer of GET /log: its entries and where to go on.
func lines(t *testing.T, body []byte) (seqs []log.Seq, next string) {
	t.Helper()
	for in := bufio.NewScanner(bytes.NewReader(body)); in.Scan(); {
		var line struct {
			Seq   log.Seq         `json:"seq"`
			Next  string          `json:"next"`
			Error json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(in.Bytes(), &line); err != nil || line.Error != nil || next != "" {
			t.Fatalf("after the cursor %q the line %s (%v)", next, in.Bytes(), err)
		}
		if next = line.Next; next == "" {
			seqs = append(seqs, line.Seq)
		}
	}
	return seqs, next
}

// readLog reads all of GET /log, going on where an answer ends.
func (p *person) readLog(query string) (all []log.Seq, answers int) {
	p.t.Helper()
	for path := "/log?" + query; ; {
		answer, body := p.ask(http.MethodGet, path, nil)
		if answer.StatusCode == http.StatusTooManyRequests {
			after, err := strconv.Atoi(answer.Header.Get("Retry-After"))
			if err != nil || after < 1 || !bytes.Contains(body, []byte("_entries")) {
				p.t.Fatalf("Retry-After %q: %s", answer.Header.Get("Retry-After"), body)
			}
			time.Sleep(time.Duration(after) * time.Second)
			continue
		}
		if answer.StatusCode != http.StatusOK {
			p.t.Fatalf("%s: %d %s", path, answer.StatusCode, body)
		}
		seqs, next := lines(p.t, body)
		all = append(all, seqs...)
		answers++
		if next == "" {
			return all, answers
		}
		if _, err := log.ParseCursor(next); err != nil {
			p.t.Fatal(err)
		}
		path = "/log?" + query + "&cursor=" + url.QueryEscape(next)
	}
}

// vmsOf writes VMs of owners in turn, as many in a change as there may be, and
// returns the entries of the first owner.
func vmsOf(t *testing.T, c *bench.Cluster, count int, owners []log.UUID) (first []log.Seq) {
	t.Helper()
	for done := 0; done < count; {
		change := &log.Change{ID: client.NewChangeID()}
		var mine []int
		for i := 0; i < log.MaxOps && done < count; i, done = i+1, done+1 {
			owner := owners[done%len(owners)]
			if owner == owners[0] {
				mine = append(mine, i)
			}
			change.Ops = append(change.Ops, log.Op{
				Action: log.Create, Kind: log.KindVM, Set: []string{"owner_uuid", "server_uuid", "state", "uuid"},
				Object: &log.VM{UUID: client.NewChangeID(), OwnerUUID: owner, ServerUUID: log.UUID{15: 9}, State: "running"},
			})
		}
		result, err := c.Client.Submit(patience(t), change)
		if err != nil || result.Refusal != nil {
			t.Fatal(err, result.Refusal)
		}
		for _, i := range mine {
			first = append(first, result.First+log.Seq(i))
		}
	}
	return first
}

// The budget limits the entries that are read for a tenant's reader, whatever it asks
// for. The answer says where to go on; a reader that does gets exactly what is its own.
func TestTenantReadsWithinItsBudget(t *testing.T) {
	t.Parallel()
	const atOnce, perSecond = 3000, 5000
	const operatorAtOnce, operatorPerSecond = 3000, 2000
	c := cluster(t, bench.Options{TLS: true, Flags: []string{fmt.Sprintf("--budget=tenant_entries=%d:%d", perSecond, atOnce), fmt.Sprintf("--budget=operator_entries=%d:%d", operatorPerSecond, operatorAtOnce)}})
	events := 20_000
	if os.Getenv("RUTTER_LONG") != "" {
		events = 100_000
	}
	owners := []log.UUID{{1}, {2}, {3}, {4}}
	leader, err := c.Leader(patience(t))
	if err != nil {
		t.Fatal(err)
	}
	operator := newPerson(t, c, leader, matrix.Identity{Role: matrix.Operator, Name: "ops"})
	if answer, body := operator.ask(http.MethodPut, "/grants/reader:tenant", map[string]any{"owner_uuids": []string{owners[0].String()}}); answer.StatusCode >= 300 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	want := vmsOf(t, c, events, owners)
	tenant := newPerson(t, c, leader, matrix.Identity{Role: matrix.Reader, Name: "tenant"})
	const counted = `rutter_budget_used_total{budget="tenant_entries"}`

	// Four at once, as greedy as they can: together they have one budget.
	begun, before := time.Now(), operator.metric(counted)
	greedy, stop := context.WithCancel(patience(t))
	defer stop()
	ended := make(chan error, 4)
	for range cap(ended) {
		go func() {
			var failed error
			for greedy.Err() == nil && failed == nil {
				r, err := http.NewRequestWithContext(greedy, http.MethodGet, tenant.url+"/log", nil)
				if err != nil {
					ended <- err
					return
				}
				if answer, err := tenant.http.Do(r); err == nil {
					_, _ = io.Copy(io.Discard, answer.Body) // it may end with the time
					answer.Body.Close()
					if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusTooManyRequests {
						failed = fmt.Errorf("HTTP %d", answer.StatusCode)
					}
				}
			}
			ended <- failed
		}()
	}
	const refused = `rutter_budget_refused_total{budget="tenant_entries"}`
	awaits(t, "one is refused", func() bool {
		return len(ended) > 0 || time.Since(begun) > 2*time.Second && operator.metric(refused) > 0
	})
	stop()
	for range cap(ended) {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	used, seconds := operator.metric(counted)-before, time.Since(begun).Seconds()
	const step = 8192 // of each reader one may be beyond
	if most := atOnce + perSecond*seconds + 4*step; used > most || used < atOnce {
		t.Errorf("%.0f entries were looked at in %.1f s, want at most %.0f", used, seconds, most)
	}

	begun = time.Now()
	got, answers := tenant.readLog("kind=vm")
	enough := atOnce+perSecond*time.Since(begun).Seconds()+step >= float64(events) // for one answer
	if !slices.Equal(got, want) {
		t.Errorf("%d entries in %d answers, want %d", len(got), answers, len(want))
	}
	if answers < 2 && !enough {
		t.Errorf("%d answers: the budget did not end one", answers)
	}
	// The same for an operator's filter, and by the client, which goes on by itself.
	begun = time.Now()
	got, answers = operator.readLog("owner=" + owners[0].String())
	const ofIndex = 256 // the index names the owner's entries, and so many are read in a step
	enough = operatorAtOnce+operatorPerSecond*time.Since(begun).Seconds()+ofIndex >= float64(len(want))
	if !slices.Equal(got, want) || answers < 2 && !enough {
		t.Errorf("an operator: %d entries in %d answers, want %d", len(got), answers, len(want))
	}
	got = nil
	for line, err := range c.Client.Log(patience(t), client.LogQuery{Query: url.Values{"owner": {owners[0].String()}}}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, line.Seq)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the client: %d entries, want %d", len(got), len(want))
	}
}

// madChange is a change of as many operations as there may be.
func madChange(cn log.UUID, ops int) map[string]any {
	all := make([]map[string]any, ops)
	for i := range all {
		all[i] = map[string]any{"action": "create", "kind": "vm", "object": map[string]any{
			"uuid": client.NewChangeID().String(), "owner_uuid": cn.String(), "server_uuid": cn.String(), "state": "running", "brand": "lx",
		}}
	}
	return map[string]any{"ops": all}
}

// A compute node that writes 1,024 operations a change, on every server and
// as fast as it can, is refused by the budget's name and then by the limit of what
// it may own; operators write on, and it has no more than that.
func TestMadNodeIsRefusedByName(t *testing.T) {
	t.Parallel()
	const most, perSecond, atOnce = 2500, 500, 4096
	c := cluster(t, bench.Options{TLS: true, Flags: []string{fmt.Sprintf("--budget=cn_operations=%d:%d", perSecond, atOnce)}})
	if _, err := c.Leader(patience(t)); err != nil {
		t.Fatal(err)
	}
	operator := newPerson(t, c, c.Servers[0], matrix.Identity{Role: matrix.Operator, Name: "ops"})
	if answer, body := operator.ask(http.MethodPost, "/changes", map[string]any{"ops": []any{map[string]any{
		"action": "create", "kind": "setting", "object": map[string]any{"name": "cn.max_vms", "value": strconv.Itoa(most)},
	}}}); answer.StatusCode >= 300 {
		t.Fatalf("%d %s", answer.StatusCode, body)
	}
	cn := client.NewChangeID()
	var mad []*person
	for _, s := range c.Servers {
		mad = append(mad, newPerson(t, c, s, matrix.Identity{Role: matrix.CN, UUID: cn}))
	}
	duration := 2 * time.Second
	if os.Getenv("RUTTER_LONG") != "" {
		duration = time.Minute
	}
	begun, taken, byBudget, byLimit, writes := time.Now(), 0, 0, 0, 0
	for i := 0; time.Since(begun) < duration || byBudget == 0 || byLimit == 0; i++ {
		answer, body := mad[i%len(mad)].ask(http.MethodPost, "/changes", madChange(cn, log.MaxOps))
		switch {
		case answer.StatusCode < 300:
			taken++
		case answer.StatusCode == http.StatusTooManyRequests && bytes.Contains(body, []byte(`"cn_operations"`)) && answer.Header.Get("Retry-After") != "":
			byBudget++
		case answer.StatusCode == http.StatusUnprocessableEntity && bytes.Contains(body, []byte("limit cn_vms")):
			byLimit++
		default:
			t.Fatalf("%d %s", answer.StatusCode, body)
		}
		if answer, body := operator.ask(http.MethodPost, "/changes", map[string]any{"ops": []any{map[string]any{
			"action": "create", "kind": "nic_tag", "object": map[string]any{"name": fmt.Sprintf("t%d", i)},
		}}}); answer.StatusCode >= 300 {
			t.Fatalf("an operator's write: %d %s", answer.StatusCode, body)
		}
		writes++
		if time.Since(begun) > within {
			t.Fatalf("%d were taken, %d refused by the budget, %d by the limit", taken, byBudget, byLimit)
		}
	}
	t.Logf("%d changes were taken, %d refused by the budget, %d by the limit, beside %d writes", taken, byBudget, byLimit, writes)
	if taken != most/log.MaxOps {
		t.Errorf("%d changes of %d VMs were taken, where %d may be", taken, log.MaxOps, most)
	}
	// One account for all servers: three would have let it try thrice as often.
	if tried, most := (taken+byLimit)*log.MaxOps, atOnce+perSecond*time.Since(begun).Seconds(); float64(tried) > most {
		t.Errorf("%d operations were decided, over %.0f", tried, most)
	}
	state, err := c.Client.State(patience(t), url.Values{"kind": {"vm"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Objects) > most {
		t.Errorf("it has %d VMs, over %d", len(state.Objects), most)
	}
}
