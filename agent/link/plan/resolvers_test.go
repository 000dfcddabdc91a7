package plan

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"rutter/agent/link/internal/linktest"
	"rutter/log"
	"rutter/projections/desired"
)

var (
	ourCluster, earlierCluster, otherCluster = log.UUID{1, 15: 1}, log.UUID{1, 15: 2}, log.UUID{1, 15: 3}
	ourNode, otherNode                       = log.UUID{2, 15: 1}, log.UUID{2, 15: 2}
)

// resolversOf is a resolv.conf as the agent of a node writes it.
func resolversOf(cluster, node log.UUID) string {
	var n Numbers
	n.Follow(cluster)
	n.SetNode(node)
	return n.resolvConf(linktest.Sample().Fabrics[0].Resolvers)
}

// madeBy is what a node has made for our cluster; the zero node: a version without its mark.
func madeBy(t *testing.T, node log.UUID) (*Fake, desired.Links, Numbers) {
	f, want := &Fake{}, linktest.Sample()
	f.AddNamespace("z1")
	numbers := numbersFor(want)
	numbers.Follow(ourCluster)
	numbers.SetNode(node)
	apply(t, f, want, numbers)
	return f, want, numbers
}

// TestResolversBearTheirMark: a resolv.conf says of which cluster and compute node it is, in
// lines that a resolver skips. One of a version without marks gets its mark.
func TestResolversBearTheirMark(t *testing.T) {
	f, want, numbers := madeBy(t, log.UUID{})
	numbers.SetNode(ourNode)
	text := ResolversHead + "# rutter " + ourCluster.String() + " resolvers " + ourNode.String() + "\nnameserver 8.8.8.8\n"
	steps := apply(t, f, want, numbers)
	if !slices.ContainsFunc(steps, func(s string) bool { return strings.HasPrefix(s, "write resolv.conf of z1") }) || f.resolvers["z1"] != text {
		t.Errorf("steps %v, resolv.conf %q, want %q", steps, f.resolvers["z1"], text)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "nameserver ") {
			t.Errorf("a resolver does not know the line %q", line)
		}
	}
	stored, err := json.Marshal(numbers)
	if err != nil || strings.Contains(string(stored), ourNode.String()) {
		t.Errorf("stored with the node, which another program says: %s, %v", stored, err)
	}
}

// TestWhoseResolversGo: of the files that are not wanted, those of this node go, also where no
// number says that there is one; those without a mark only where a link of ours was.
func TestWhoseResolversGo(t *testing.T) {
	var numbers Numbers
	numbers.Follow(earlierCluster)
	numbers.Follow(ourCluster)
	numbers.SetNode(ourNode)
	unmarked := ResolversHead + "nameserver 8.8.8.8\n"
	for _, test := range []struct {
		name, text       string
		known, elsewhere bool // removed from a namespace of the numbers, and from another one
	}{
		{"ours", resolversOf(ourCluster, ourNode), true, true},
		{"of a cluster before", resolversOf(earlierCluster, ourNode), true, true},
		{"of another cluster", resolversOf(otherCluster, ourNode), false, false},
		{"of another node", resolversOf(ourCluster, otherNode), false, false},
		{"without a mark", unmarked, true, false},
		{"with a comment that is no mark", ResolversHead + "# rutter was here\nnameserver 8.8.8.8\n", true, false},
		{"mark without its comment sign", strings.Replace(resolversOf(otherCluster, otherNode), "# rutter ", "rutter ", 1), true, false},
		{"of another program", "nameserver 8.8.8.8\n", false, false},
		{"of another program, with our mark", strings.TrimPrefix(resolversOf(ourCluster, ourNode), ResolversHead), false, false},
		{"empty", "", false, false},
	} {
		files := map[string]string{"z9": test.text}
		if got := Plan(desired.Links{}, Snapshot{Resolvers: files}, numbers, true).Steps; (len(got) == 1 && got[0].Op == OpRemoveResolvers && got[0].Namespace == "z9") != test.known {
			t.Errorf("%s, where a link was: %v, want removed: %v", test.name, got, test.known)
		}
		if got := Plan(desired.Links{}, Snapshot{Elsewhere: files}, numbers, true).Steps; (len(got) == 1 && got[0].Op == OpRemoveResolvers && got[0].Namespace == "z9") != test.elsewhere {
			t.Errorf("%s, elsewhere: %v, want removed: %v", test.name, got, test.elsewhere)
		}
		if got := Plan(desired.Links{}, Snapshot{Resolvers: files, Elsewhere: files}, numbers, false).Steps; len(got) != 0 {
			t.Errorf("%s, without prune: %v, want nothing", test.name, got)
		}
	}
}

// TestResolversOfAStoppedVMStay: the namespace of a NIC that is wanted does not exist.
func TestResolversOfAStoppedVMStay(t *testing.T) {
	f, want, numbers := madeBy(t, ourNode)
	f.DeleteNamespace("z1")
	have, _ := f.Dump(context.Background(), []string{"z1"})
	have.Elsewhere, have.Resolvers = have.Resolvers, nil
	for _, s := range Plan(want, have, numbers, true).Steps {
		if s.Op == OpRemoveResolvers {
			t.Errorf("got %v, want the file to stay for when the VM runs", s)
		}
	}
	if len(have.Elsewhere) != 1 {
		t.Fatalf("there is no file: %v", have.Elsewhere)
	}
}
