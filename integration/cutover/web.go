package cutover

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
)

// object is a JSON object.
type object = map[string]any

// names are the URLs by which a program asks the three services. They change when an
// operator repoints them.
type names struct {
	mu                 sync.RWMutex
	napi, cnapi, vmapi string
}

func (n *names) point(napi, cnapi, vmapi string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for to, url := range map[*string]string{&n.napi: napi, &n.cnapi: cnapi, &n.vmapi: vmapi} {
		if url != "" {
			*to = url
		}
	}
}

func (n *names) of(service string) string {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return map[string]string{"napi": n.napi, "cnapi": n.cnapi, "vmapi": n.vmapi}[service]
}

// failure is an answer that is no success.
type failure struct {
	status int
	code   string
	text   string
}

func (f *failure) Error() string { return f.text }

// codeOf is the code of an answer that is no success; "" of any other error.
func codeOf(err error) string {
	if f, ok := err.(*failure); ok {
		return f.code
	}
	return ""
}

// client has no connections that outlive an answer: names are looked up anew.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}

// call makes a request and decodes its answer into to, if that is not nil.
func call(ctx context.Context, method, url string, body, to any) error {
	var reader io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, url, reader)
	if err != nil {
		return err
	}
	r.Header.Set("x-request-id", uuid.NewString())
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, url, err)
	}
	if response.StatusCode > 299 {
		var said struct{ Code string }
		_ = json.Unmarshal(text, &said) // the text is shown
		return &failure{response.StatusCode, said.Code, fmt.Sprintf("%s %s: %d %s", method, url, response.StatusCode, text)}
	}
	if to == nil || len(text) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s %s: %w: %.200s", method, url, err, text)
	}
	return nil
}

// reply answers with JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if v != nil {
		_ = json.NewEncoder(w).Encode(v) // the caller is gone
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, object{"code": code, "message": message})
}

// passOn answers with an error of another service as it was (rule 9).
func passOn(w http.ResponseWriter, err error) {
	if f, ok := err.(*failure); ok {
		refuse(w, f.status, f.code, f.text)
		return
	}
	refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
}

// params are what restify gives a handler: the query, and the keys of the body.
func params(r *http.Request) object {
	p := object{}
	if body, err := io.ReadAll(r.Body); err == nil && len(body) > 0 {
		_ = json.Unmarshal(body, &p) // a body that is none has no keys
	}
	for name, values := range r.URL.Query() {
		if _, given := p[name]; !given {
			p[name] = values[0]
		}
	}
	return p
}

func text(o object, name string) string { s, _ := o[name].(string); return s }

// poll asks until ok says so, or an error that is none of waiting; at most for 30 s.
func poll(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		done, err := ok()
		if done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// now is a time as VMAPI prints it. Two times are never equal.
func now() string {
	clock.Lock()
	defer clock.Unlock()
	t := time.Now().UTC().Truncate(time.Millisecond)
	if !t.After(clock.last) {
		t = clock.last.Add(time.Millisecond)
	}
	clock.last = t
	return t.Format("2006-01-02T15:04:05.000Z")
}

var clock struct {
	sync.Mutex
	last time.Time
}
