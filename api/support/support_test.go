package support

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"
)

// The ring keeps the newest whole lines, and never more bytes than its bound.
func TestRing(t *testing.T) {
	r := NewRing(1000)
	for i := range 500 {
		fmt.Fprintf(r, "line %d ", i)
		fmt.Fprintf(r, "ends\n")
		if r.Bytes() > 1000 {
			t.Fatalf("%d bytes after line %d", r.Bytes(), i)
		}
	}
	text, dropped := r.Text()
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if lines[len(lines)-1] != "line 499 ends" || int(dropped)+len(lines) != 500 || len(lines) < 50 {
		t.Errorf("%d dropped, %d kept, the last is %q", dropped, len(lines), lines[len(lines)-1])
	}
	fmt.Fprintf(r, "%s\nafter\n", strings.Repeat("x", 10*MaxLine))
	if text, _ = r.Text(); string(text) != "after\n" {
		t.Errorf("after a line of %d bytes: %q", 10*MaxLine, text)
	}
}

// What is secret goes, whatever stands around it; the rest stays.
func TestScrub(t *testing.T) {
	const token = "0e70de36-a40b-4ac0-9429-819f5ff82011." + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE"
	for _, text := range []string{
		`level=INFO msg=x passphrase="correct SECRET staple" next=kept`,
		`{"msg":"x","password":"SECRET","next":"kept"}`,
		`msg="it said \"password\": \"SECRET\" there" next=kept`,
		`Authorization: Bearer SECRET` + "\nkept",
		`http://admin:SECRET@10.0.0.1:80/x kept`,
		`token=SECRET kept`, `api-key: SECRET kept`, `RUTTER_PASSPHRASE=SECRET kept`,
		"-----BEGIN EC PRIVATE KEY-----\nSECRET\n-----END EC PRIVATE KEY-----\nkept",
		`-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY----- kept`,
		`{"customer_metadata": {"a": "}SECRET", "b": {"c": ["SECRET"]}}, "next": "kept"}`,
		`{"internal_metadata":{"x\"y":"SECRET"},"next":"kept"}`,
		`msg="body {\"customer_metadata\":{\"k\":\"SECRET\"}}"` + "\nkept",
		"vm {alias:x customer_metadata:map[a:SECRET b:two SECRET words c:]SECRET]}\nkept",
		`msg="it has internal_metadata=map[root_pw:SECRET x:y SECRET]"` + "\nkept",
		"the SECRET of the caller, kept",
		"token " + token + " kept",
	} {
		clean, n := Scrub([]byte(text), "the SECRET of")
		if bytes.Contains(clean, []byte("SECRET")) || bytes.Contains(clean, []byte("AbCdEfGh")) || !bytes.Contains(clean, []byte("kept")) || n == 0 {
			t.Errorf("%s\nis now (%d changes)\n%s", text, n, clean)
		}
	}
	const plain = "rutter_tokens_total 3\ntls-key = \"/etc/rutter/tls.key\"\nserver s1 https://10.0.0.1:7420/x leads, cursor 0e70de36-a40b-4ac0-9429-819f5ff82011.12\n"
	if clean, n := Scrub([]byte(plain)); string(clean) != plain || n != 0 {
		t.Errorf("%d changes: %s", n, clean)
	}
}

// A part that is too long is cut, one that hangs is late and keeps only its own turn, and
// an unknown one names those that there are.
func TestCollectIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Ring: NewRing(100), Settings: []Setting{{Name: "a", Value: "http://x:SECRET@b"}}})
		release := make(chan struct{})
		s.Add("long", func(_ context.Context, w io.Writer) error {
			_, err := w.Write(make([]byte, MaxPart+5))
			return err
		})
		s.Add("hangs", func(context.Context, io.Writer) error { <-release; return nil })
		text, err := s.Collect(t.Context(), "long")
		if err != nil || len(text) > MaxPart+100 || !strings.HasSuffix(string(text), "[cut here: 5 bytes more]\n") {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		if _, err := s.Collect(t.Context(), "hangs"); !errors.Is(err, ErrLate) {
			t.Errorf("a part that hangs: %v", err)
		}
		if _, err := s.Collect(t.Context(), "hangs"); !errors.Is(err, ErrBusy) {
			t.Errorf("a part that hangs, again: %v", err)
		}
		if text, err := s.Collect(t.Context(), Settings); err != nil || string(text) != "a = \"http://(removed)@b\"\n" {
			t.Errorf("beside it: %q, %v", text, err)
		}
		close(release)
		if _, err := s.Collect(t.Context(), "hangs"); err != nil {
			t.Errorf("after it: %v", err)
		}
		if _, err := s.Collect(t.Context(), "other"); !errors.Is(err, ErrNoPart) || !strings.Contains(err.Error(), "goroutines, hangs, heap, logs") {
			t.Errorf("an unknown part: %v", err)
		}
		if given, failed := s.Counts(); given != 3 || failed != 2 {
			t.Errorf("%d given, %d failed", given, failed)
		}
	})
}

// pagerOf asks a pager as a server does.
func pagerOf(s *Source) Ask {
	p := NewPager(s)
	return func(ctx context.Context, path string) (int, []byte, error) {
		status, body := p.Answer(ctx, path)
		return status, body, nil
	}
}

// A part arrives whole, whatever its size.
func TestPages(t *testing.T) {
	s := New(Config{})
	var want bytes.Buffer
	for i := range 60000 { // it hardly compresses, so it takes many pages
		fmt.Fprintf(&want, "%x\n", uint64(i)*0x9e3779b97f4a7c15)
	}
	s.Add("big", func(_ context.Context, w io.Writer) error { _, err := w.Write(want.Bytes()); return err })
	pages := 0
	ask := pagerOf(s)
	text, err := Fetch(t.Context(), "big", func(ctx context.Context, path string) (int, []byte, error) {
		pages++
		return ask(ctx, path)
	})
	if err != nil || !bytes.Equal(text, want.Bytes()) || pages < 5 {
		t.Errorf("%d of %d bytes in %d pages, %v", len(text), want.Len(), pages, err)
	}
	if _, err := Fetch(t.Context(), "none", ask); err == nil || !strings.Contains(err.Error(), "there are") {
		t.Errorf("an unknown part: %v", err)
	}
}

// zipped is the gzip form of so many zeros.
func zipped(n int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(make([]byte, n))
	_ = z.Close()
	return b.Bytes()
}

// The answers of a hostile node are refused after few requests, and bound memory.
func TestHostilePages(t *testing.T) {
	full := make([]byte, PageBytes)
	bomb := zipped(64 << 20)
	for name, answer := range map[string]func(n int) any{
		"no JSON":        func(int) any { return json.RawMessage(`"x"`) },
		"huge size":      func(int) any { return Page{ID: 1, Size: 1 << 40, Data: full} },
		"negative":       func(int) any { return Page{ID: 1, Size: -1, Data: full} },
		"no id":          func(int) any { return Page{Size: PageBytes, Data: full} },
		"empty pages":    func(int) any { return Page{ID: 1, Size: 10} },
		"slow drip":      func(n int) any { return Page{ID: 1, Size: MaxPacked, Offset: n, Data: []byte{1}} },
		"grows":          func(n int) any { return Page{ID: 1, Size: (n + 2) * PageBytes, Offset: n * PageBytes, Data: full} },
		"another id":     func(n int) any { return Page{ID: uint64(n + 1), Size: MaxPacked, Offset: n * PageBytes, Data: full} },
		"same again":     func(int) any { return Page{ID: 1, Size: MaxPacked, Data: full} },
		"more than size": func(int) any { return Page{ID: 1, Size: 5, Data: full} },
		"big page":       func(int) any { return Page{ID: 1, Size: MaxPacked, Data: make([]byte, PageBytes+1)} },
		"no gzip":        func(n int) any { return Page{ID: 1, Size: 2 * PageBytes, Offset: n * PageBytes, Data: full} },
		"bomb": func(n int) any {
			at := n * PageBytes
			return Page{ID: 1, Size: len(bomb), Offset: at, Data: bomb[at:min(at+PageBytes, len(bomb))]}
		},
	} {
		asked := 0
		_, err := Fetch(t.Context(), Logs, func(context.Context, string) (int, []byte, error) {
			body, err := json.Marshal(answer(asked))
			if asked++; asked > MaxPacked/PageBytes {
				t.Fatalf("%s: asked %d times", name, asked)
			}
			return http.StatusOK, body, err
		})
		if !errors.Is(err, ErrAnswer) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := Fetch(t.Context(), Logs, func(context.Context, string) (int, []byte, error) {
		return http.StatusServiceUnavailable, []byte(`{"message": "\u001b[31m` + strings.Repeat("x", 9000) + `"}`), nil
	})
	if err == nil || len(err.Error()) > maxSaid || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a long message: %v", err)
	}
	// C1 controls begin sequences of terminals as ESC does; U+202E turns what follows around.
	if got := Printable("a\u009b31mb\u202ec\nd\xffé" + strings.Repeat("é", maxSaid)); !utf8.ValidString(got) || !strings.HasPrefix(got, "a?31mb?c d?éé") || len(got) > maxSaid+1 {
		t.Errorf("a text with controls: %q", got)
	}
}
