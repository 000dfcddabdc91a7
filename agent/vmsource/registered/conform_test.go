package registered

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"rutter/agent/vmsource"
	"rutter/agent/vmsource/internal/sourcetest"
	"rutter/log"
)

// TestConforms: a source of registered VMs is a source as each is.
func TestConforms(t *testing.T) {
	t.Parallel()
	m, folder := newModel(t, 9), t.TempDir()
	var now *Source
	open := func(t *testing.T) vmsource.Source {
		s, err := New(Config{Name: "test", Folder: folder, CN: modelCN, Node: m, Servers: m, NewID: m.newID, RetryMin: time.Millisecond, DeleteWithin: time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		now = s
		return s
	}
	open(t)
	sourcetest.Run(t, sourcetest.Subject{
		New: open,
		Put: func(t *testing.T, id log.UUID, alias string) {
			if _, err := now.Put(t.Context(), id, Registration{Alias: alias, OwnerUUID: modelOwner}, Wait{}); err != nil {
				t.Fatal(err)
			}
		},
		Remove: func(t *testing.T, id log.UUID) {
			if err := now.Delete(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		},
	})
}

// golden is a record with each field, as version 1 of the files has it.
func golden() *record {
	status := -9
	return &record{
		Version: 1, UUID: webVM, Alias: "web0", OwnerUUID: modelOwner, Zonename: "web0", State: StateStopped, RAM: 512, VCPUs: 2, Brand: "cni", ExitStatus: &status,
		Tags: map[string]string{"role": "web"}, Known: true, Leaving: true,
		NICs: []nicRecord{{
			Key: "eth0", Network: openNet, MAC: log.MAC{2, 1, 2, 3, 4, 5}, Given: true, Primary: true, Change: log.UUID{1, 6: 0x70, 8: 0x80}, Held: true, Fabric: true,
			Leaving: true, Delete: log.UUID{2, 6: 0x70, 8: 0x80}, Reason: "why",
		}},
	}
}

// TestGoldenFile: a file of version 1 is read by each later program as it was written.
func TestGoldenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join("testdata", "version1.json")
	text, err := golden().encode()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(text, want) {
		t.Errorf("%v; got %s, want %s", err, text, want)
	}
	if r, err := decodeRecord(want); err != nil || !reflect.DeepEqual(r, golden()) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// FuzzDecodeRecord: whatever a file has, it is damaged or a record that is written again as
// it is and passes the checks of a registration.
func FuzzDecodeRecord(f *testing.F) {
	text, err := golden().encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"uuid":"01000000-0000-4000-8000-000000000001","nics":[{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decodeRecord(text)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			t.Skip("larger than a file may be")
		}
		back, err := decodeRecord(again)
		if err != nil || !reflect.DeepEqual(r, back) {
			t.Errorf("got %+v, %v; want %+v", back, err, r)
		}
	})
}

// FuzzRegistration: no body of a request registers what a file may not have.
func FuzzRegistration(f *testing.F) {
	f.Add([]byte(`{"owner_uuid":"aa000000-0000-0000-0000-000000000001","nics":[{"key":"eth0","network":"0e000000-0000-0000-0000-000000000001","attach":{"kind":"tap"}}]}`))
	m := newModel(f, 10)
	s, err := New(Config{Name: "test", Folder: f.TempDir(), CN: modelCN, Node: m, Servers: m, NewID: m.newID})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		reg, err := decodeRegistration(body)
		if err != nil {
			return
		}
		r, _, err := s.merged(webVM, nil, &reg)
		if err != nil {
			return
		}
		text, err := r.encode()
		if err != nil {
			t.Skip("larger than a file may be")
		}
		if _, err := decodeRecord(text); err != nil {
			t.Errorf("%v: %s", err, text)
		}
	})
}
