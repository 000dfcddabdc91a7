package console

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(method, target string, header http.Header) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for name := range header {
		r.Header.Set(name, header.Get(name))
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w
}

func TestFiles(t *testing.T) {
	for _, c := range []struct {
		method, target string
		status         int
		mediaType      string
	}{
		{"GET", "/console/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/console/", 200, "text/html; charset=utf-8"},
		{"GET", "/console/index.html", 200, "text/html; charset=utf-8"},
		{"GET", "/console/worker.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/console/console.css", 200, "text/css; charset=utf-8"},
		{"GET", "/console/none.js", 404, ""},
		{"GET", "/console/%2e%2e/doc.go", 404, ""},
		{"GET", "/console/../console.go", 404, ""},
		{"POST", "/console/", 405, ""},
		{"DELETE", "/console/worker.js", 405, ""},
	} {
		w := get(c.method, c.target, nil)
		if w.Code != c.status {
			t.Errorf("%s %s: status %d, want %d", c.method, c.target, w.Code, c.status)
		}
		if c.status != 200 {
			continue
		}
		if got := w.Header().Get("Content-Type"); got != c.mediaType {
			t.Errorf("%s: Content-Type %q, want %q", c.target, got, c.mediaType)
		}
		if got := w.Header().Get("Content-Security-Policy"); strings.Contains(got, "unsafe") || !strings.HasPrefix(got, "default-src 'none'") {
			t.Errorf("%s: Content-Security-Policy %q", c.target, got)
		}
	}
}

func TestUnchangedFilesAreNotSentAgain(t *testing.T) {
	tag := get("GET", "/console/", nil).Header().Get("Etag")
	if w := get("GET", "/console/", http.Header{"If-None-Match": {tag}}); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
		t.Errorf("with its own tag %s: status %d and %d bytes, want 304 and none", tag, w.Code, w.Body.Len())
	}
}

// No file needs an exception in the policy, turns text into markup, or contains the
// address of another host.
func TestFilesKeepThePolicy(t *testing.T) {
	forbidden := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function|\sstyle="|\son[a-z]+="|https?://|//cdn`)
	names, err := fs.Glob(files, "page/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(b), "http://www.w3.org/2000/svg", "") // a name, nothing that is fetched
		if found := forbidden.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		if types[path.Ext(name)] == "" {
			t.Errorf("%s has no media type", name)
		}
	}
	page, err := files.ReadFile("page/index.html")
	if err != nil {
		t.Fatal(err)
	}
	if inline := regexp.MustCompile(`<script[^>]*>[^<]|<style`).FindString(string(page)); inline != "" {
		t.Errorf("index.html has inline code: %q", inline)
	}
}

// The page only reads: no file asks by another method than GET.
func TestOnlyGETs(t *testing.T) {
	names, err := fs.Glob(files, "page/*.js")
	if err != nil {
		t.Fatal(err)
	}
	writes := regexp.MustCompile(`method:|sendBeacon|XMLHttpRequest|WebSocket`)
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if found := writes.Find(b); found != nil {
			t.Errorf("%s has %q", name, found)
		}
	}
}
