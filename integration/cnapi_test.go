package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"rutter/api/client"
	"rutter/cmd/rutter/bench"
	"rutter/log"
)

// cnAgent posts like a cn-agent: one request at a time, the next heartbeat 5 s
// after the answer to the last.
type cnAgent struct {
	t    *testing.T
	uuid string
}

// post makes one request; the error is of one that was not taken. A node that is
// not heard for 30 s is missed, so one request and the pause before it take less.
func (a *cnAgent) post(s *bench.Server, path, body string) error {
	ctx, cancel := context.WithTimeout(a.t.Context(), 20*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/cnapi/servers/"+a.uuid+path, bytes.NewReader([]byte(body)))
	if err != nil {
		a.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s: %s", response.Status, answer)
	}
	return err
}

// beat posts heartbeats to one server for a time. While servers elect a leader they
// take none, so that who has a choice goes to another: it is posted again then.
func (a *cnAgent) beat(s *bench.Server, during time.Duration) {
	for end := time.Now().Add(during); time.Now().Before(end); {
		err := a.post(s, "/events/heartbeat", "{}")
		for until := time.Now().Add(20 * time.Second); err != nil && time.Now().Before(until); err = a.post(s, "/events/heartbeat", "{}") {
			time.Sleep(100 * time.Millisecond)
		}
		if err != nil {
			a.t.Errorf("no heartbeat to %s was taken in 20 s: %v", s.ID, err)
		}
		select {
		case <-time.After(5 * time.Second):
		case <-a.t.Context().Done():
		}
	}
}

// The fault that was measured with CNAPI itself (spec/cnapi.md §4.2), over three
// real servers: a compute node beats to A, then to B. A never sets it unknown, and
// when the node was unknown, B's beats repair it. Its status is of the log, so it
// is counted there.
func TestHeartbeatsFailOver(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 75 s of real time: heartbeats come each 5 s, and a compute node is missed after 30 s")
	}
	t.Parallel()
	c := startCluster(t)
	cn := &cnAgent{t, "564d69b1-a178-4fbe-b36f-3f2b7fd7edaa"}
	a, b := c.Servers[0], c.Servers[1]
	if err := cn.post(a, "/sysinfo", `{"sysinfo":{"UUID":"`+cn.uuid+`","Hostname":"old","Setup":"true"}}`); err != nil {
		t.Fatal("its sysinfo was not taken:", err)
	}
	cn.beat(a, 14*time.Second)
	wantStatuses(t, c, cn.uuid, "unknown running")
	cn.beat(b, 16*time.Second) // A's copy is older than CNAPI's 11 s from here on
	c.signal(a, syscall.SIGKILL)
	cn.beat(b, 14*time.Second) // if A led, another judges now
	c.start(a)
	wantStatuses(t, c, cn.uuid, "unknown running")
	c.waitReady(a)
	cn.beat(a, 9*time.Second)
	cn.beat(b, 9*time.Second)
	wantStatuses(t, c, cn.uuid, "unknown running")
}

// wantStatuses wants the status of a server in each of its events, without those
// that leave it as it was.
func wantStatuses(t *testing.T, c *cluster, cn, want string) {
	t.Helper()
	var got []string
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		got = statusesOf(t, c.Servers[1], cn)
		if strings.Join(got, " ") == want {
			return
		}
		time.Sleep(200 * time.Millisecond) // a judgement comes each second
	}
	t.Errorf("the statuses were %q, want %q", strings.Join(got, " "), want)
}

// A task that one server took is waited for on another, and survives the first.
func TestTaskOutlivesItsServer(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	cn := &cnAgent{t, "564d69b1-a178-4fbe-b36f-3f2b7fd7edab"}
	if err := cn.post(c.Servers[0], "/sysinfo", `{"sysinfo":{"UUID":"`+cn.uuid+`","Setup":"true","Rutter Agent":"test"}}`); err != nil {
		t.Fatal("its sysinfo was not taken:", err)
	}
	first := c.Servers[0]
	response, err := http.Post(first.URL+"/cnapi/servers/"+cn.uuid+"/nop", "application/json", strings.NewReader(`{"timeout":60}`)) //nolint:noctx // a test's own server
	if err != nil {
		t.Fatal(err)
	}
	var made struct{ ID log.UUID }
	err = json.NewDecoder(response.Body).Decode(&made)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("answered %d, %v", response.StatusCode, err)
	}
	c.signal(first, syscall.SIGKILL)
	waited := make(chan string, 1)
	go func() {
		raw, err := c.Client.Raw(t.Context(), http.MethodGet, "/cnapi/tasks/"+made.ID.String()+"/wait?timeout=30", nil)
		waited <- fmt.Sprint(string(raw), err)
	}()
	for _, object := range []*log.Task{{Status: log.TaskActive, ClaimedBy: 9}, {Status: log.TaskComplete, ClaimedBy: 9}} {
		change := &log.Change{ID: client.NewChangeID(), Ops: []log.Op{{
			Action: log.Update, Kind: log.KindTask, ID: made.ID.String(), Set: []string{"claimed_by", "status"}, Object: object,
		}}}
		if _, err := c.Client.Submit(t.Context(), change); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-waited; !strings.Contains(got, `"status":"complete"`) {
		t.Errorf("waited for %s", got)
	}
}

// statusesOf reads the history of a server's object.
func statusesOf(t *testing.T, from *bench.Server, cn string) (statuses []string) {
	t.Helper()
	response, err := http.Get(from.URL + "/servers/" + cn + "/history") //nolint:noctx // a test's own server
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var line struct {
			Object struct{ Status string }
		}
		err := lines.Decode(&line)
		if errors.Is(err, io.EOF) {
			return statuses
		}
		if err != nil {
			t.Fatal(err)
		}
		if s := line.Object.Status; len(statuses) == 0 || statuses[len(statuses)-1] != s {
			statuses = append(statuses, s)
		}
	}
}
