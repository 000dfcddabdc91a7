package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rutter/agent/vminfo"
	"rutter/api/client"
	"rutter/log"
)

// TestUnreadableSource: the VMs of a source whose folder cannot be read are not taken for gone,
// and the status says why.
func TestUnreadableSource(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "vmsource", "cni", log.UUID{1, 15: 1}.String()+".json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Base(file), file); err != nil { // it leads to itself
		t.Fatal(err)
	}
	api, err := client.New(client.Config{Servers: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{CN: log.UUID{2, 15: 1}, Folder: folder, VMs: &VMOptions{Sources: []string{"cni", "lxc"}}, Logger: slog.New(slog.DiscardHandler)}
	opts.Servers = &Connection{API: api}
	found := new(troubles)
	_, sources := newRegistrations(&opts, new(vmSide), found)
	if len(sources) != 2 || len(found.all()) != 1 {
		t.Fatalf("%d sources, %v; want both, and one trouble", len(sources), found.all())
	}
	service, err := vminfo.New(vminfo.Config{Sources: sources[:1]})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, nil) }()
	<-service.Ready()
	if service.Complete() || service.Gone()(log.UUID{1, 15: 1}) {
		t.Error("its VMs are taken for gone")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestSourceThatIsSwitchedOff: VMs of a source that --vm-sources does not name any more are
// shown as before, so that they and their links stay; operators are told; no program registers
// more in it.
func TestSourceThatIsSwitchedOff(t *testing.T) {
	t.Parallel()
	folder, id := t.TempDir(), log.UUID{1, 6: 0x40, 8: 0x80, 15: 1}
	file := filepath.Join(folder, "vmsource", "cni", id.String()+".json")
	text := `{"version":1,"uuid":"` + id.String() + `","owner_uuid":"` + id.String() + `","zonename":"web0","state":"running","brand":"cni","known":true,"nics":[{"key":"eth0","mac":"02:00:00:00:00:01","held":true,"attach":{"kind":"tap","device":"web0"}}]}`
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(client.Config{Servers: []string{"http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{CN: log.UUID{2, 15: 1}, Folder: folder, VMs: &VMOptions{Sources: []string{"local"}}, Logger: slog.New(slog.DiscardHandler)}
	opts.Servers = &Connection{API: api}
	found := new(troubles)
	r, sources := newRegistrations(&opts, new(vmSide), found)
	if len(sources) != 2 || len(found.all()) != 1 || !strings.Contains(found.all()[0], "the source cni") || !strings.Contains(found.all()[0], "rutter vm delete") {
		t.Fatalf("%d sources, %v; want both, and what to do", len(sources), found.all())
	}
	if at := r.sources["cni"].Attachments(); len(at) != 1 || at[0].VM != id || at[0].At.Device != "web0" {
		t.Errorf("its links end at %+v", at)
	}
	mux, w := http.NewServeMux(), httptest.NewRecorder()
	r.handle(mux)
	if mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/vmsource/cni/vms", nil)); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "--vm-sources") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}
