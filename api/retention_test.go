package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rutter/api"
)

// keeper keeps what it is told to.
type keeper struct {
	has  api.Retention
	sets int
}

func (k *keeper) PlanRetention(r *api.Retention) (api.RetentionPlan, error) {
	p := api.RetentionPlan{Retention: k.has, Head: 100, Floor: 10, Next: 10}
	if r != nil {
		p.Retention, p.Next = *r, 50
	}
	return p, nil
}

func (k *keeper) SetRetention(_ context.Context, r api.Retention) error {
	k.has, k.sets = r, k.sets+1
	return nil
}

// A retention is shown, tried without effect, and set in parts; what makes no
// sense is refused by name.
func TestRetention(t *testing.T) {
	k := &keeper{has: api.Retention{Age: time.Hour, Events: 1000, Bytes: 1 << 30}}
	s, err := api.New(api.Config{Store: api.NewMemory(), Retainer: k})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	ask := func(method, query, body string) (int, map[string]any, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/cluster/retention"+query, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		form := make(map[string]any)
		_ = json.Unmarshal(text, &form) // what is no JSON lacks what is looked for
		return answer.StatusCode, form, string(text)
	}
	if status, f, text := ask("GET", "", ""); status != 200 || f["age"] != "1h0m0s" || f["entries_to_go"] != 0.0 {
		t.Errorf("shown: %d %s", status, text)
	}
	if status, f, text := ask("GET", "?age=30m&events=5", ""); status != 200 || f["age"] != "30m0s" || f["events"] != 5.0 || f["bytes"] != float64(1<<30) || f["entries_to_go"] != 40.0 {
		t.Errorf("tried: %d %s", status, text)
	}
	if k.sets != 0 {
		t.Error("a trial set it")
	}
	if status, _, text := ask("PUT", "", `{"events":7}`); status != 200 || k.sets != 1 || k.has != (api.Retention{Age: time.Hour, Events: 7, Bytes: 1 << 30}) {
		t.Errorf("set: %d %s: %+v", status, text, k.has)
	}
	for body, field := range map[string]string{
		`{}`: "body", `{"age":"week"}`: "age", `{"age":"-1h"}`: "age", `{"bytes":1}`: "bytes", `{"byte":1}`: "body", `{"events":1} {}`: "body", `x`: "body",
	} {
		if status, _, text := ask("PUT", "", body); status != 422 || !strings.Contains(text, `"field":"`+field+`"`) {
			t.Errorf("%s: got %d %s, want 422 about %s", body, status, text, field)
		}
	}
	if k.sets != 1 {
		t.Errorf("%d sets, want 1", k.sets)
	}
}
