package vmhelper

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"rutter/agent/vminfo/system"
	"rutter/agent/vminfo/vmrun"
	"rutter/log"
)

// TestErrorsKeepTheirIdentity: an error is the same for the client as for the helper, alone
// and among others; a code that a client does not know is text.
func TestErrorsKeepTheirIdentity(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range codes {
		if seen[c.code] {
			t.Errorf("two errors have the code %s", c.code)
		}
		seen[c.code] = true
		text, err := json.Marshal(remoteOf(fmt.Errorf("VM x: %w", errors.Join(io.EOF, c.err))))
		if err != nil {
			t.Fatal(err)
		}
		r := new(remote)
		if err := json.Unmarshal(text, r); err != nil {
			t.Fatal(err)
		}
		got := r.local()
		if !errors.Is(got, c.err) || !strings.HasPrefix(got.Error(), "VM x: ") {
			t.Errorf("%s: got %v", c.code, got)
		}
		for _, other := range codes {
			if other.code != c.code && errors.Is(got, other.err) != errors.Is(c.err, other.err) {
				t.Errorf("%s is %s too", c.code, other.code)
			}
		}
	}
	later := (&remote{Text: "of a later version", Codes: []string{"not_known_yet", "running"}}).local()
	if !errors.Is(later, vmrun.ErrRunning) || later.Error() != "of a later version" {
		t.Errorf("of a later version: %v", later)
	}
	if remoteOf(nil) != nil || (*remote)(nil).local() != nil {
		t.Error("no error is one")
	}
	long := remoteOf(errors.New(strings.Repeat("é", maxText)))
	if text, err := encode(answer{Error: long}); err != nil || len(text) > MaxAnswer {
		t.Errorf("a long text is %d bytes as an answer, it may have %d (%v)", len(text), MaxAnswer, err)
	}
}

// TestLargestRequest: a manifest of the largest size fits, and a larger one is refused.
func TestLargestRequest(t *testing.T) {
	id, err := log.ParseUUID("5595d88c-6e4d-4bda-b58e-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	folders := Folders{Manifests: strings.Repeat("m", 4096), PIDs: strings.Repeat("p", 4096), NetNS: strings.Repeat("n", 4096), EtcNetNS: strings.Repeat("e", 4096), Cgroup: strings.Repeat("c", 4096)}
	for _, more := range []int{0, 1} {
		text, err := encode(request{Protocol: protocol, Version: "v", Act: actExchange, VM: id, Before: make([]byte, len(vmrun.Digest{})), Manifest: make([]byte, system.MaxManifest+more), Folders: &folders})
		if err != nil {
			t.Fatal(err)
		}
		message, err := readMessage(bytes.NewReader(text), MaxRequest)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = decodeRequest(message); (err != nil) != (more > 0) {
			t.Errorf("a manifest of %d bytes more than the largest: %v", more, err)
		}
	}
}

// countingReader counts the bytes that were asked for at once.
type countingReader struct {
	io.Reader
	most int
}

// Read implements io.Reader.
func (r *countingReader) Read(p []byte) (int, error) {
	r.most = max(r.most, len(p))
	return r.Reader.Read(p)
}

// FuzzRequest: each message is refused or read; what is read is sent as it was read, and has
// what its act needs. The memory that a message takes follows from what came of it.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"protocol":1,"act":"status"}`), uint32(0))
	f.Add([]byte(`{"protocol":1,"act":"start","vm":"5595d88c-6e4d-4bda-b58e-000000000001","folders":{"manifests":"/etc/rutter/vms"}}`), uint32(0))
	f.Add([]byte(`{"protocol":2,"act":"stop","vm":"5595d88c-6e4d-4bda-b58e-000000000001","force":true,"later":[{}]}`), uint32(7))
	f.Add([]byte(`{"protocol":1,"act":"exchange","vm":"5595d88c-6e4d-4bda-b58e-000000000001","before":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=","manifest":"e30="}`), uint32(0))
	f.Fuzz(func(t *testing.T, text []byte, wrong uint32) {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(text))+wrong)
		from := &countingReader{Reader: bytes.NewReader(append(head, text...))}
		message, err := readMessage(from, MaxRequest)
		if from.most > 4*len(text)+32<<10 {
			t.Fatalf("%d bytes came, and %d were made room for", len(text), from.most)
		}
		if err != nil {
			if len(text) > 0 && len(text) <= MaxRequest && wrong == 0 {
				t.Fatal(err)
			}
			return
		}
		r, err := decodeRequest(message)
		if err != nil {
			if !errors.Is(err, ErrRequest) && !errors.Is(err, ErrUnknownAct) {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		if r.Act == actExchange && (r.VM.IsZero() || len(r.Manifest) == 0 || len(r.Before) != len(vmrun.Digest{})) {
			t.Fatalf("an exchange that lacks something: %+v", r)
		}
		sent, err := encode(r)
		if err != nil {
			t.Fatal(err)
		}
		again, err := decodeRequest(sent[lengthSize:])
		if err != nil || !reflect.DeepEqual(normal(again), normal(r)) {
			t.Fatalf("sent again, it is %+v (%v), and was %+v", again, err, r)
		}
	})
}

// normal is a request in which no field and an empty one are the same.
func normal(r request) request {
	if len(r.Before) == 0 {
		r.Before = nil
	}
	if len(r.Manifest) == 0 {
		r.Manifest = nil
	}
	return r
}
