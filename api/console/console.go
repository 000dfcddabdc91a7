package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"time"
)

// Prefix is the path of the page; its files are below.
const Prefix = "/console/"

//go:embed page
var files embed.FS

// policy is the page's Content-Security-Policy: everything comes from this server,
// nothing is inline, the page cannot be framed, and no text becomes script (Trusted
// Types; the one named policy makes the URL of the page's worker).
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types rutter"

// types are the media types of the files, by extension. The system's table is not used,
// because it differs between machines.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Handler returns what serves the files below Prefix; Prefix itself is the page.
// Any other path is answered with 404, another method than GET and HEAD with 405.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the console only reads: use GET", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if name == "" {
		name = "index.html"
	}
	body, err := files.ReadFile(path.Join("page", path.Clean("/"+name)))
	mediaType, known := types[path.Ext(name)]
	if err != nil || !known {
		http.Error(w, fmt.Sprintf("the console has no %q: it begins at %s", name, Prefix), http.StatusNotFound)
		return
	}
	sum := sha256.Sum256(body)
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	// Browsers must ask again each time, mostly answered with 304: the files of one
	// page must be of one version, also after an upgrade of the server.
	h.Set("Cache-Control", "no-cache")
	h.Set("Etag", `"`+hex.EncodeToString(sum[:16])+`"`)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(body))
}
