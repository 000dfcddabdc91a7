package vminfo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"rutter/agent/vminfo/vminfod"
	"rutter/agent/vminfo/vmstore"
)

// secret stands in each field that only root may see.
const secret = "hunter2"

// limitedServer allows clients with a header only.
func limitedServer(t *testing.T) *server {
	s := newServer(t, Config{Allow: func(r *http.Request) (bool, error) {
		if r.Header.Get("Test-Unknown") != "" {
			return false, errors.New("unknown")
		}
		return r.Header.Get("Test-Root") != "", nil
	}}, testVM(t, 1, `,"alias":"web0","customer_metadata":{"root_pw":"`+secret+`"},"nics":[{"mac":"90:b8:d0:00:00:01","ip":"`+secret+`"}],"owner_uuid":"`+secret+`"`))
	return s
}

// get returns the status and text of an answer.
func (s *server) get(t *testing.T, path, header string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if header != "" {
		request.Header.Set(header, "1")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

// A client that is not allowed sees which VMs there are and their state, and none of
// their secrets, on each path.
func TestLimitedClients(t *testing.T) {
	s := limitedServer(t)
	for path, want := range map[string]string{
		"/vms":                `"alias":"web0"`,
		"/vms/" + testUUID(1): `"alias":"web0"`,
		"/status":             `"numVms":1`,
		"/status?full=true":   `"numVms":1`,
		"/ping":               "pong",
	} {
		if code, text := s.get(t, path, ""); code != http.StatusOK || !strings.Contains(text, want) || strings.Contains(text, secret) || !json.Valid([]byte(text)) {
			t.Errorf("%s: %d %s, want %s and no secret", path, code, text, want)
		}
	}
	for _, c := range []struct {
		path, header string
		want         int
	}{
		{"/scan", "", http.StatusForbidden},
		// A client that is unknown may be one that needs everything.
		{"/scan", "Test-Unknown", http.StatusForbidden},
		{"/vms", "Test-Unknown", http.StatusForbidden},
		{"/vms/" + testUUID(1), "Test-Unknown", http.StatusForbidden},
		{"/events", "Test-Unknown", http.StatusForbidden},
		{"/status", "Test-Unknown", http.StatusOK},
		{"/ping", "Test-Unknown", http.StatusOK},
	} {
		if code, text := s.get(t, c.path, c.header); code != c.want || strings.Contains(text, secret) {
			t.Errorf("%s, %s: %d %s, want %d", c.path, c.header, code, text, c.want)
		}
	}
	for _, path := range []string{"/vms", "/vms/" + testUUID(1)} {
		if code, text := s.get(t, path, "Test-Root"); code != http.StatusOK || !strings.Contains(text, secret) {
			t.Errorf("root, %s: %d %s, want everything", path, code, text)
		}
	}
	if code, _ := s.get(t, "/scan", "Test-Root"); code != http.StatusOK {
		t.Errorf("root, /scan: %d, want 200", code)
	}
}

// Its stream has the events about public fields. What happens to others is not even seen
// to happen.
func TestLimitedEvents(t *testing.T) {
	s := limitedServer(t)
	events, err := s.client.Events(t.Context(), vminfod.Position{})
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	if strings.Contains(string(events.Ready.Line), secret) || len(events.Ready.VMs) != 1 {
		t.Errorf("ready: %s", events.Ready.Line)
	}
	s.put(t, 2, `,"quota":1,"root_pw":"`+secret+`"`)
	s.put(t, 2, `,"quota":1,"root_pw":"`+secret+`2"`)
	s.put(t, 2, `,"quota":2,"root_pw":"`+secret+`3"`)
	s.source.sink.Delete(testVM(t, 2, "").UUID)
	for _, want := range []string{"create", "modify", "delete"} {
		m, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}
		if m.Type != want || strings.Contains(string(m.Line), secret) || want == "modify" && (len(m.Changes) != 1 || m.Changes[0].PrettyPath() != "quota") {
			t.Errorf("got %s, want %s, without secrets", m.Line, want)
		}
	}
}

// Clients that are not allowed take few of the places, however many connect.
func TestLimitedListenersAreFew(t *testing.T) {
	s := limitedServer(t)
	open := func(ctx context.Context, header string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		if header != "" {
			request.Header.Set(header, "1")
		}
		response, err := s.client.Transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response.StatusCode
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range maxLimited {
		if code := open(ctx, ""); code != http.StatusOK {
			t.Fatalf("a listener within the bound: %d", code)
		}
	}
	if code := open(ctx, ""); code != http.StatusServiceUnavailable {
		t.Errorf("one more: %d, want 503", code)
	}
	if code := open(ctx, "Test-Root"); code != http.StatusOK {
		t.Errorf("a client that is allowed: %d, want 200", code)
	}
	if refused := s.Status(false).Rutter.Refused; refused != 1 {
		t.Errorf("%d refused, want 1", refused)
	}
}

// A vminfod that hides fields is not followed: its VMs would seem to have lost them.
func TestLimitedIsNotFollowed(t *testing.T) {
	s := limitedServer(t)
	stream, err := vminfod.NewStream(vminfod.StreamConfig{Client: s.client})
	if err != nil {
		t.Fatal(err)
	}
	store := vmstore.New(vmstore.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	loaded, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- stream.Run(ctx, store.Sink(stream.Name(), func() { close(loaded) })) }()
	<-loaded
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := stream.Status(); store.Count() != 0 || got.Complete {
		t.Errorf("%d VMs, %+v; want none, incomplete", store.Count(), got)
	}
}
