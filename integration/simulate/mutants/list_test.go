package mutants

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	root = "../../.."
	page = root + "/docs/mutants.md"
	mark = "<!-- mutants -->\n"
)

// Each mutant replaces a text that its file has exactly once, names tests that there are, and
// breaks a rule of safety or is a bug that there was.
func TestMutantsFit(t *testing.T) {
	safety, err := os.ReadFile(filepath.Join(root, "docs", "safety.md"))
	if err != nil {
		t.Fatal(err)
	}
	peers, err := os.ReadFile(filepath.Join(root, "integration", "faults", "bugs_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found, err := ReadFound(filepath.Join(root, FoundFile))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range All("") {
		if err := m.Check(root); err != nil {
			t.Error(err)
		}
		if names[m.Name] {
			t.Errorf("two mutants are called %q", m.Name)
		}
		names[m.Name] = true
		for _, rule := range m.Rules {
			if !strings.Contains(string(safety), "("+rule+")\n") {
				t.Errorf("mutant %q: docs/safety.md has no rule %s", m.Name, rule)
			}
		}
		if m.Peer != "" && !regexp.MustCompile(`where: "[^"]*`+regexp.QuoteMeta(m.Peer[strings.Index(m.Peer, "#")+1:])).Match(peers) {
			t.Errorf("mutant %q: package faults has no bug %s", m.Name, m.Peer)
		}
		if len(m.Rules) == 0 && m.Peer == "" && m.Past == "" {
			t.Errorf("mutant %q breaks no rule, and is no bug that there was", m.Name)
		}
		if len(m.Own) == 0 && found[m.Name].After == 0 {
			t.Errorf("mutant %q: no test notices it, and the simulator did not find it", m.Name)
		}
	}
	for name := range found {
		if !names[name] {
			t.Errorf("%s has %q, which is no mutant", FoundFile, name)
		}
	}
}

// Each bug of a peer that package faults lists is planted.
func TestPeersBugsArePlanted(t *testing.T) {
	peers, err := os.ReadFile(filepath.Join(root, "integration", "faults", "bugs_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	planted := map[string]bool{}
	for _, m := range All("") {
		planted[m.Peer] = true
	}
	bugs := regexp.MustCompile(`where: "([^",]+)`).FindAllStringSubmatch(string(peers), -1)
	if len(bugs) < 18 {
		t.Errorf("found only %d bugs of peers in package faults", len(bugs))
	}
	for _, bug := range bugs {
		if !planted[bug[1]] {
			t.Errorf("no mutant is the bug %s of a peer", bug[1])
		}
	}
}

// A row says why no history can show it only if none did, and has a test of its own then.
func TestUnseenMutants(t *testing.T) {
	found, err := ReadFound(filepath.Join(root, FoundFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range All("") {
		if m.Unseen != "" && (found[m.Name].After > 0 || len(m.Own) == 0 || len(m.Themes) > 0) {
			t.Errorf("mutant %q cannot be seen from outside, it says: it was found, or has themes, or has no test", m.Name)
		}
	}
}

// docs/mutants.md shows this list.
func TestPageOfMutants(t *testing.T) {
	found, err := ReadFound(filepath.Join(root, FoundFile))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	text, table, ok := strings.Cut(string(b), mark)
	if !ok {
		t.Fatalf("docs/mutants.md has no line %q", mark)
	}
	want := Page(found)
	if os.Getenv("RUTTER_WRITE") != "" {
		if err := os.WriteFile(page, []byte(text+mark+want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if table != want {
		t.Error("the tables of docs/mutants.md are not this list: RUTTER_WRITE=1 writes them anew")
	}
}
