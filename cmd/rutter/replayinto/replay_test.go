package replayinto

import (
	"path/filepath"
	"strings"
	"testing"

	"rutter/log"
)

// What a change becomes in another cluster says what it stands for.
func TestTagsOfChanges(t *testing.T) {
	a := mappedChange{Cluster: log.UUID{1}, First: 7}
	b := mappedChange{Cluster: log.UUID{1}, First: 8}
	if tagOf(a) == tagOf(b) {
		t.Error("tags do not tell changes apart")
	}
	id := tagOf(a).id(1 << 40)
	if tagIn(id) != tagOf(a) || id[6]>>4 != 7 || id[8]>>6 != 2 {
		t.Errorf("id %s", id)
	}
	if id == tagOf(a).id(1<<40) && tagIn(tagOf(a).id(1<<40)) != tagIn(id) {
		t.Error("two ids of one change have two tags")
	}
}

// A map file goes on where it ended, whatever was cut off, and is of two clusters.
func TestMapFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "map")
	one, two := log.UUID{1}, log.UUID{2}
	m, err := openMap(name, one, two)
	if err != nil {
		t.Fatal(err)
	}
	source := mappedChange{Cluster: one, First: 3, Last: 4}
	if err := m.add(mapping{Source: source, Target: mappedChange{Cluster: two, First: 9, Last: 10}}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.out.WriteString(`{"source":`); err != nil {
		t.Fatal(err)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if m, err = openMap(name, one, two); err != nil {
		t.Fatal(err)
	}
	if !m.has(source) || m.has(mappedChange{Cluster: one, First: 2, Last: 2}) || len(m.changes) != 1 {
		t.Errorf("read %+v", m)
	}
	if err := m.close(); err != nil {
		t.Fatal(err)
	}
	if _, err := openMap(name, two, one); err == nil || !strings.Contains(err.Error(), "--map") {
		t.Errorf("of other clusters: %v", err)
	}
}
