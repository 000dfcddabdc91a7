package vmstore

import (
	"rutter/agent/vminfo/vmdoc"
	"rutter/agent/vmsource"
	"rutter/log"
)

// Sink returns the store's side for one source. loaded is called for each
// [vmsource.Sink.Loaded].
func (s *Store) Sink(source string, loaded func()) vmsource.Sink {
	return &storeSink{s, source, loaded}
}

type storeSink struct {
	store  *Store
	source string
	loaded func()
}

func (s *storeSink) Put(vm vmdoc.VM) ([]vmdoc.Change, bool, error) { return s.store.Put(s.source, vm) }

func (s *storeSink) Delete(id log.UUID) bool { return s.store.Delete(s.source, id) }

func (s *storeSink) UUIDs() []log.UUID { return s.store.UUIDs(s.source) }
func (s *storeSink) Loaded()           { s.loaded() }
