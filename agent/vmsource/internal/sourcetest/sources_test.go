package sourcetest

import (
	"context"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/agent/vminfo"
	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/vminfod"
	"rutter/agent/vmsource"
	"rutter/log"
)

// folder is a folder of manifests, which makes VMs of the sources that look at it.
type folder string

func (f folder) put(t *testing.T, id log.UUID, alias string) {
	t.Helper()
	path := filepath.Join(string(f), id.String()+".json")
	text := `{"uuid":"` + id.String() + `","alias":"` + alias + `","owner_uuid":"` + id.String() + `"}`
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func (f folder) remove(t *testing.T, id log.UUID) {
	t.Helper()
	if err := os.Remove(filepath.Join(string(f), id.String()+".json")); err != nil {
		t.Fatal(err)
	}
}

func (f folder) source(t *testing.T) vmsource.Source {
	t.Helper()
	dir := t.TempDir()
	source, err := manifests.New(manifests.Config{Manifests: string(f), PIDs: filepath.Join(dir, "run"), NetNS: filepath.Join(dir, "netns"), Cgroup: filepath.Join(dir, "cgroup"), Machines: filepath.Join(dir, "machines")})
	if err != nil {
		t.Fatal(err)
	}
	return source
}

func TestManifests(t *testing.T) {
	t.Parallel()
	f := folder(t.TempDir())
	Run(t, Subject{New: f.source, Put: f.put, Remove: f.remove})
}

// TestVminfod follows another vminfod, whose VMs are a folder of manifests.
func TestVminfod(t *testing.T) {
	t.Parallel()
	f := folder(t.TempDir())
	service, err := vminfo.New(vminfo.Config{Sources: []vmsource.Source{f.source(t)}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- service.Run(ctx, nil) }()
	<-service.Ready()
	server := httptest.NewServer(service.Handler())
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
		<-ended
	})
	Run(t, Subject{
		New: func(t *testing.T) vmsource.Source {
			stream, err := vminfod.NewStream(vminfod.StreamConfig{Client: vminfod.New(strings.TrimPrefix(server.URL, "http://"), "test"), RetryEvery: time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return stream
		},
		Put: f.put, Remove: f.remove,
	})
}
