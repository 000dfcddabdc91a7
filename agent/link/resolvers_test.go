package link

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"rutter/agent/link/plan"
	"rutter/log"
	"rutter/projections/desired"
)

// resolversIn lists the namespaces that have a resolv.conf.
func (w *world) resolversIn() (names []string) {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.etc, "*", "resolv.conf"))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return names
}

// at is a new process of an agent on a node, with an empty or an old cache.
func (w *world) at(node string, cluster, cn log.UUID, numbers plan.Numbers) *Manager {
	m := NewManager(ManagerConfig{Kernel: w.open(node), Numbers: numbers})
	m.SetOwner(cluster, cn)
	return m
}

// TestResolversAfterALostCache (SAFETY L3): the first complete pass of a process removes each
// resolv.conf of its node that is not wanted, whatever its cache says and also if the
// namespace is gone, and none of the other agents on the machine.
func TestResolversAfterALostCache(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"zA", "zB", "zC"} {
		w.namespace(name)
	}
	a, b := w.two(0, false)
	gone, c := clone(a), clone(a)
	gone.Fabrics[0].MAC, gone.Fabrics[0].Namespace = mac(8), "zD"
	c.VXLANs[0].VNet, c.Fabrics[0].VNet, c.Fabrics[0].MAC, c.Fabrics[0].Namespace = 8, 8, mac(9), "zC"
	c.FDB, c.Neighs = nil, nil
	w.namespace("zD")
	first := w.at("cn1", clusterA, nodeA, plan.Numbers{})
	w.pass(first, joinedFabrics(a, gone))
	if text, err := os.ReadFile(filepath.Join(w.etc, "zD", "resolv.conf")); err != nil || !strings.Contains(string(text), nodeA.String()) {
		t.Fatalf("resolv.conf: %q, %v, want the node's mark", text, err)
	}
	w.drop("zD")
	w.pass(w.at("cn2", clusterA, nodeB, plan.Numbers{}), b) // of the same cluster
	w.pass(w.at("cn1", clusterB, nodeA, plan.Numbers{}), c) // of the same node
	byHand := filepath.Join(w.etc, "zE")
	unmarked := filepath.Join(w.etc, "zF") // an older version's, in a namespace of which no number tells
	for folder, text := range map[string]string{byHand: "nameserver 192.168.5.1\n", unmarked: plan.ResolversHead + "nameserver 192.168.5.1\n"} {
		if err := errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "resolv.conf"), []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}

	fresh := w.at("cn1", clusterA, nodeA, plan.Numbers{})
	if _, err := fresh.Pass(context.Background(), desired.Links{}, false); err != nil || !slices.Contains(w.resolversIn(), "zD") {
		t.Errorf("a view that is not complete removed: %v left, %v", w.resolversIn(), err)
	}
	result := w.pass(fresh, desired.Links{})
	if slices.ContainsFunc(result.Drift, func(s plan.Step) bool { return s.Op == plan.OpRemoveResolvers }) {
		t.Errorf("what an earlier process wrote was counted as drift: %v", texts(result.Drift))
	}
	if got := w.resolversIn(); !slices.Equal(got, []string{"zB", "zC", "zE", "zF"}) {
		t.Errorf("resolv.conf is left of %v, want those of the others", got)
	}
}

// joinedFabrics is a desired state with the NICs of another one too.
func joinedFabrics(a, b desired.Links) desired.Links {
	a = clone(a)
	a.Fabrics = append(a.Fabrics, b.Fabrics...)
	return a
}

// TestResolversAreLookedAtOnce: a process looks at the files of the whole machine until a
// complete pass has removed those of its own, and not while a removal fails, or is withheld.
func TestResolversAreLookedAtOnce(t *testing.T) {
	k := &countedFiles{Fake: new(plan.Fake)}
	k.AddNamespace("z1")
	write := func() {
		k.Do(context.Background(), []plan.Step{{Op: plan.OpWriteResolvers, Namespace: "z1", Content: plan.ResolversHead + "# " + plan.Mark{Cluster: clusterA, Object: "resolvers " + nodeA.String()}.String() + "\n"}})
	}
	write()
	m := NewManager(ManagerConfig{Kernel: k})
	pass := func(what string, looked int, removed bool) {
		t.Helper()
		k.looked = 0
		if _, err := m.Pass(context.Background(), desired.Links{}, true); err != nil {
			t.Fatal(err)
		}
		if files, _ := k.Fake.ResolverFiles(); k.looked != looked || (len(files) == 0) != removed {
			t.Errorf("%s: looked %d times, left %v, want %d, removed: %v", what, k.looked, files, looked, removed)
		}
	}
	pass("without an owner", 0, false)
	m.SetOwner(clusterA, nodeA)
	k.err = syscall.EACCES
	result, err := m.Pass(context.Background(), desired.Links{}, true)
	if err != nil || result.Matched || len(result.Failures) != 1 || !errors.Is(result.Failures[0].Err, syscall.EACCES) {
		t.Errorf("a folder that cannot be listed: %v, %v, want a failure that says so", result.Failures, err)
	}
	k.err = nil
	k.Fail = func(plan.Step) error { return syscall.EBUSY }
	pass("a removal that fails", 2, false)
	k.Fail = nil
	m.backoff = map[plan.Object]waiting{}
	m.surplus = map[linkEntry]struct{}{}
	m.Keep(true)
	pass("withheld", 1, false)
	m.Keep(false)
	pass("at last", 2, true)
	write()
	pass("later", 0, false)
	m.SetOwner(clusterB, nodeA)
	pass("another cluster", 2, true)
}

// countedFiles counts how often the files of the machine are looked at.
type countedFiles struct {
	*plan.Fake
	looked int
	err    error
}

func (k *countedFiles) ResolverFiles() (map[string]string, error) {
	k.looked++
	if k.err != nil {
		return nil, k.err
	}
	return k.Fake.ResolverFiles()
}
