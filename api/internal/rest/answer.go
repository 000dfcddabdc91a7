package rest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// WriteJSON answers with v, without HTML escapes in its texts. For HEAD it sends only
// the header.
func WriteJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		status = http.StatusInternalServerError
		b.Reset()
		fmt.Fprintf(&b, "{\"code\":%q,\"message\":%q}\n", CodeInternal, "the answer cannot be printed: "+err.Error())
	}
	WriteBody(w, r, status, b.Bytes())
}

// WriteBody answers with a JSON text.
func WriteBody(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // nothing can be done for a client that has gone
	}
}

// WriteEscaped answers with v in the default form of encoding/json, with HTML escapes,
// and leaves the length to net/http. It is for surfaces whose clients expect that form.
func WriteEscaped(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that does not read it asks again
}

// JSONLine prints v on one line.
func JSONLine(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	return append(b, '\n'), err
}

// Recorder records the status and size of an answer.
type Recorder struct {
	http.ResponseWriter
	Status int // 0: nothing was answered yet
	Bytes  int // of the body
}

// Write implements http.ResponseWriter.
func (w *Recorder) Write(b []byte) (int, error) {
	n, err := w.ResponseWriter.Write(b)
	w.Bytes += n
	return n, err
}

// WriteHeader implements http.ResponseWriter. The first status counts.
func (w *Recorder) WriteHeader(status int) {
	if w.Status == 0 {
		w.Status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *Recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }
