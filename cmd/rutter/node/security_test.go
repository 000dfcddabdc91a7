package node

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/agent/link/plan"
	"rutter/log"
)

// TestSecurityOfAFolder: a new node has port security, one that ran a version without it has
// not, and both stay as they are until an operator says otherwise.
func TestSecurityOfAFolder(t *testing.T) {
	marked := func(object string) plan.Link {
		return plan.Link{Alias: plan.Mark{Cluster: log.UUID{1}, Object: object}.String()}
	}
	is := true
	for _, test := range []struct {
		name     string
		files    map[string]string
		links    []plan.Link
		asked    string
		required *bool
		on, must bool
		record   string
	}{
		{name: "new", on: true, must: true, record: "on"},
		{name: "with another program's links", links: []plan.Link{{Name: "sdcvxl5", Kind: plan.KindVXLAN}}, on: true, must: true, record: "on"},
		{name: "an older cache", files: map[string]string{"cache.db": "x"}, record: "off"},
		{name: "an older version's links", links: []plan.Link{marked("vxlan 5"), marked("nic 02:00:00:00:00:01")}, record: "off"},
		{name: "the folder was lost", links: []plan.Link{marked("bridge 5 0"), marked("vxlan 5")}, on: true, must: true, record: "on"},
		{name: "recorded on", files: map[string]string{"port-security": "on\n", "cache.db": "x"}, on: true, must: true, record: "on"},
		{name: "recorded off", files: map[string]string{"port-security": "off\n"}, record: "off"},
		{name: "asked on", files: map[string]string{"cache.db": "x"}, asked: "on", on: true, record: "off"},
		{name: "asked on, required", files: map[string]string{"cache.db": "x"}, asked: "on", required: &is, on: true, must: true, record: "off"},
		{name: "asked off", asked: "off", must: true, record: "on"},
	} {
		t.Run(test.name, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			look := func(context.Context) (plan.Snapshot, error) { return plan.Snapshot{Links: test.links}, nil }
			for range 2 {
				s, err := SecurityOf(t.Context(), folder, test.asked, test.required, look, slog.New(slog.DiscardHandler))
				if err != nil || s.On != test.on || s.Required != test.must {
					t.Fatalf("got on %v, required %v, %v, want %v, %v", s.On, s.Required, err, test.on, test.must)
				}
				if said := s.Since != ""; said != (!test.on && test.asked == "") {
					t.Errorf("it says %q", s.Since)
				}
			}
			if text, err := os.ReadFile(filepath.Join(folder, "port-security")); err != nil || strings.TrimSpace(string(text)) != test.record {
				t.Errorf("recorded: %q, %v, want %s", text, err, test.record)
			}
		})
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "port-security"), []byte("maybe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := SecurityOf(t.Context(), folder, "", nil, nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("a record that says nothing is accepted")
	}
}

func TestSecurityTrouble(t *testing.T) {
	sysctl := t.TempDir()
	for name, text := range map[string]string{"arptables": "0\n", "iptables": "1\n"} {
		if err := os.WriteFile(filepath.Join(sysctl, "bridge-nf-call-"+name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	on, off := &Security{Secure: plan.Secure{On: true}}, &Security{Since: "it is old"}
	for _, test := range []struct {
		s     *Security
		err   error
		words []string
	}{
		{on, nil, []string{"net.bridge.bridge-nf-call-iptables"}},
		{on, errors.New("no sets"), []string{"no sets", "net.bridge.bridge-nf-call-iptables"}},
		{off, nil, []string{"it is old"}},
		{&Security{}, nil, nil},
	} {
		got := securityTrouble(test.s, test.err, sysctl)
		if len(got) != len(test.words) {
			t.Fatalf("got %q, want %q", got, test.words)
		}
		for i, word := range test.words {
			if !strings.Contains(got[i], word) || strings.Contains(got[i], "arptables") {
				t.Errorf("got %q, want %q", got[i], word)
			}
		}
	}
}
