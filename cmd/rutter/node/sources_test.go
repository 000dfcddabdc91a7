package node

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
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
