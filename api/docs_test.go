package api

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"rutter/api/auth/matrix"
	"rutter/log"
)

// docs/api.md has a line of each route, with who may ask it as the matrix has it.
func TestDocsHaveTheRoutes(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Store: newMemory()})
	if err != nil {
		t.Fatal(err)
	}
	endpoints := s.Endpoints()
	documented := make(map[string]string) // by METHOD /pattern, the line
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.Contains(cells[1], "/") {
			continue
		}
		route := strings.Trim(strings.TrimSpace(cells[1]), "`")
		if strings.TrimSpace(cells[3]) == "" {
			t.Errorf("%s: the line does not say what it answers", route)
		}
		documented[route] = line
	}
	used := make(map[string]bool)
	for _, endpoint := range endpoints {
		route := endpoint
		if _, own := documented[route]; !own {
			method, pattern, _ := strings.Cut(endpoint, " /")
			_, rest, more := strings.Cut(pattern, "/")
			if route = method + " /KIND"; more {
				route += "/" + rest
			}
		}
		used[route] = true
		if want := fmt.Sprintf("| `%s` | %s |", route, whoMay(matrix.Find(endpoint))); !strings.HasPrefix(documented[route], want) {
			t.Errorf("%s: docs/api.md must have a line that begins with %s", endpoint, want)
		}
	}
	for route := range documented {
		if !used[route] {
			t.Errorf("docs/api.md has %s, which is not served", route)
		}
	}
}

// whoMay lists the roles of a row; local ones may whatever operators may.
func whoMay(row *matrix.Row) string {
	var all, own []string
	for _, role := range slices.DeleteFunc(matrix.Roles(), func(r matrix.Role) bool { return r == matrix.Local }) {
		switch row.For(matrix.Identity{Role: role, UUID: log.UUID{1}}) {
		case matrix.Allow:
			all = append(all, role.String())
		case matrix.Own:
			own = append(own, role.String())
		default:
			if role == matrix.Foreign && row.For(matrix.Identity{Role: role, Write: true}) == matrix.Allow {
				all = append(all, role.String()+" that may write")
			}
		}
	}
	if row.For(matrix.Identity{Role: matrix.Reader, Owners: []log.UUID{{1}}}) == matrix.Own {
		own = append(own, "tenants' readers")
	}
	text := strings.Join(all, ", ")
	if len(all) == len(matrix.Roles())-2 { // without local and expired, which may only renew
		text = "everybody"
	}
	if own != nil {
		if text != "" {
			text += "; "
		}
		text += "of its own: " + strings.Join(own, ", ")
	}
	return text
}

// Reads have HEAD as well, which stands in no line.
func TestHeadGoesWithGet(t *testing.T) {
	b := newBed(t)
	for _, path := range []string{"/nic_tags", "/livez", "/status"} {
		get, head := b.call(http.MethodGet, path, ""), b.call(http.MethodHead, path, "")
		if head.Code != get.Code || head.Header().Get("Content-Type") != get.Header().Get("Content-Type") {
			t.Errorf("HEAD %s: %d, want %d as GET has it", path, head.Code, get.Code)
		}
	}
}
