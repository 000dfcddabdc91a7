package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"rutter/api"
)

// TestSettings: a setting has its path, and only values that it knows.
func TestSettings(t *testing.T) {
	server := run(t, api.NewMemory())
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, server.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(answer)
	}
	for _, c := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/settings", `{"name":"napi.network_immutable","value":"true"}`, 200, `"value":"true"`},
		{"GET", "/settings/napi.network_immutable", "", 200, `"value":"true"`},
		{"PUT", "/settings/napi.network_immutable", `{"value":"maybe"}`, 422, "maybe"},
		{"POST", "/settings", `{"name":"moon","value":"full"}`, 422, "napi.network_immutable"},
		{"GET", "/settings", "", 200, `napi.network_immutable`},
		{"DELETE", "/settings/napi.network_immutable", "", 204, ""},
		{"GET", "/settings/napi.network_immutable", "", 404, "not found"},
	} {
		if status, answer := ask(c.method, c.path, c.body); status != c.status || !strings.Contains(answer, c.want) {
			t.Errorf("%s %s %s: %d %s, want %d with %q", c.method, c.path, c.body, status, answer, c.status, c.want)
		}
	}
}
