package napi

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestOneWriterOfAnAddress: programs read an address at each of three servers, and all
// write it with the Etag that they read. The condition is decided in the log's order, so
// exactly one succeeds, whichever servers they ask; the others get 412. The address has
// what the one that succeeded wrote.
func TestOneWriterOfAnAddress(t *testing.T) {
	c := clusterOf(t, 3)
	client := old(t)
	ask(t, client, "POST", c.Servers[0].URL+"/napi/nic_tags", `{"name": "external"}`)
	if status, body := ask(t, client, "POST", c.Servers[0].URL+"/napi/networks", netBody); status != http.StatusOK {
		t.Fatalf("network: got %d %v", status, body)
	}
	const rounds, writers = 5, 6
	for round := range rounds {
		path := fmt.Sprintf("/napi/networks/%s/ips/10.1.2.%d", network, 10+round)
		tags := make([]string, writers)
		for i := range writers {
			tags[i] = conditional(t, http.MethodGet, c.Servers[i%3].URL+path+"?consistent", "", "").tag
		}
		answers := make([]conditioned, writers)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				body := fmt.Sprintf(`{"reserved": true, "owner_uuid": "%s"}`, writer(i))
				answers[i] = conditional(t, http.MethodPut, c.Servers[i%3].URL+path, body, tags[i])
			})
		}
		wg.Wait()
		won := -1
		for i, a := range answers {
			switch {
			case a.status == http.StatusOK && won < 0:
				won = i
			case a.status == http.StatusOK:
				t.Errorf("round %d: writers %d and %d both succeeded", round, won, i)
			case a.status != http.StatusPreconditionFailed:
				t.Errorf("round %d: writer %d got %d", round, i, a.status)
			}
		}
		if won < 0 {
			t.Fatalf("round %d: no writer succeeded", round)
		}
		if _, got := ask(t, client, "GET", c.Servers[round%3].URL+path+"?consistent", ""); got["owner_uuid"] != writer(won) {
			t.Errorf("round %d: the address has %v, want what writer %d wrote", round, got, won)
		}
	}
}

func writer(i int) string { return fmt.Sprintf("9dce1460-0c4c-4417-ab8b-25ca478c5b%02d", i) }

// conditioned is an answer with its Etag.
type conditioned struct {
	status int
	tag    string
}

// conditional sends a request with If-Match, if match is not empty.
func conditional(t *testing.T, method, url, body, match string) (a conditioned) {
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return a
	}
	if match != "" {
		r.Header.Set("If-Match", match)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	client := old(t)
	response, err := client.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", method, url, err)
		return a
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return conditioned{response.StatusCode, response.Header.Get("Etag")}
}
