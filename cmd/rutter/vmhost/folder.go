package vmhost

import (
	"context"
	"sync/atomic"

	"rutter/agent/vminfo/manifests"
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// folderSource is the source of a folder of manifests. Each run begins with a new Folder,
// because one that failed has lost what it watched. Its VMs are started and stopped by
// control, unless that is nil.
type folderSource struct {
	cfg     manifests.Config
	control vmsource.Control
	now     atomic.Pointer[manifests.Folder]
}

// newFolderSource returns a source that has started nothing.
func newFolderSource(cfg manifests.Config, control vmsource.Control) (*folderSource, error) {
	folder, err := manifests.New(cfg)
	if err != nil {
		return nil, err
	}
	s := &folderSource{cfg: cfg, control: control}
	s.now.Store(folder)
	return s, nil
}

// Name implements vmsource.Source.
func (s *folderSource) Name() string { return s.now.Load().Name() }

// Scan implements vmsource.Source.
func (s *folderSource) Scan() { s.now.Load().Scan() }

// Status implements vmsource.Source.
func (s *folderSource) Status() vmsource.Status { return s.now.Load().Status() }

// Control implements vmsource.Controlled.
func (s *folderSource) Control() (vmsource.Control, error) { return s.control, nil }

// Run implements vmsource.Source.
func (s *folderSource) Run(ctx context.Context, sink vmsource.Sink) error {
	folder, err := manifests.New(s.cfg)
	if err != nil {
		return err
	}
	s.now.Store(folder)
	return folder.Run(ctx, &firstLoad{Sink: sink, folder: folder, put: make(map[log.UUID]bool)})
}

// firstLoad is a sink that deletes what an earlier run of the source put into it, and what
// is there no more, once the folder is loaded as a whole.
type firstLoad struct {
	vmsource.Sink
	folder *manifests.Folder
	put    map[log.UUID]bool // by this run; nil once it is loaded
}

// Put implements vmsource.Sink.
func (s *firstLoad) Put(vm vmdoc.VM) ([]vmdoc.Change, bool, error) {
	if s.put != nil {
		s.put[vm.UUID] = true
	}
	return s.Sink.Put(vm)
}

// Loaded implements vmsource.Sink.
func (s *firstLoad) Loaded() {
	kept := make(map[log.UUID]bool)
	st := s.folder.Status()
	for _, aside := range st.Aside {
		kept[aside.UUID] = true // a zero one may be about any VM
	}
	for _, id := range s.UUIDs() {
		if !s.put[id] && !kept[id] && !kept[log.UUID{}] {
			s.Delete(id)
		}
	}
	s.put = nil
	s.Sink.Loaded()
}
