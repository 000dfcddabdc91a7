package source_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rutter/projections/documents"
	"rutter/projections/documents/source"
)

// TestReadProblems: what is no document, and what could mean something else than it seems
// to, is refused with its file and line.
func TestReadProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"kind: network\nnaem: a\n", `x:2: network: naem: no document has it; did you mean name?`},
		{"kind: network\nname: a\nsubnet: 10.0.0.0/24\n", `network a: subnet: no document has it; write it under spec`},
		{"kind: network\nname: a\nname: b\n", `x:3: "name" is written twice`},
		{`{"kind": "network",` + "\n" + ` "kind": "nic"}`, `x:2: "kind" is written twice`},
		{"kind: netwrok\n", "it is no kind of object; write one of nic_tag"},
		{"name: a\n", "x:1: document: kind: it is missing"},
		{"- a\n- b\n", "it is no document"},
		{"kind: network\nspec: [a]\n", "it is no map"},
		{"kind: network\nuuid: a\n", "it is no UUID"},
		{"kind: network\nlabels: [a]\n", "it is no map"},
		{"kind: nic\noptions: any_owner\n", "it is no list"},
		{"kind: network\nspec: &a {mtu: 1}\n---\nkind: network\nspec: *a\n", "anchors and aliases"},
		{"kind: network\nspec: {<<: {mtu: 1}}\n", "a name must be plain text"},
		{"kind: !!str network\n", "tag !!str is not read"},
		{"kind: network\nspec: {a: !!binary aGk=}\n", "tag !!binary is not read"},
		{"kind: network\n  name: a\n", "it is no YAML"},
		{`{"kind": "network"`, "it is no JSON"},
		{"{\"kind\": \"network\",\n \"spec\": {]}", "x:2: it is no JSON"},
		{"kind: vm\nspec: {properties: " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "}\n", fmt.Sprintf("nested deeper than %d", source.MaxDepth)},
		{`{"kind":"vm","spec":{"properties":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "}}", fmt.Sprintf("nested deeper than %d", source.MaxDepth)},
		{strings.Repeat(" ", source.MaxFileBytes+1), fmt.Sprintf("over %d", source.MaxFileBytes)},
		{strings.Repeat("{\"kind\":\"vm\"}", source.MaxDocuments+1), fmt.Sprintf("more than %d documents", source.MaxDocuments)},
	} {
		_, err := source.Read("x", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80s\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
	// A small text does not stand for a huge one.
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	if _, err := source.Read("x", []byte(bomb)); err == nil || !strings.Contains(err.Error(), "anchors and aliases") {
		t.Errorf("a bomb: %v", err)
	}
}

// TestLoad: files, folders in order, and standard input; all that is wrong is said at once.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("b.yaml", "kind: nic_tag\nname: b1\n---\n---\nkind: nic_tag\nname: b2\n")
	write("a/z.yml", "kind: nic_tag\nname: z\n")
	write("c.json", `[{"kind":"nic_tag","name":"c1"},{"kind":"nic_tag","name":"c2"}] {"kind":"nic_tag","name":"c3"}`)
	write("notes.txt", "no document")
	write(".git/x.yaml", "no document")
	docs, err := source.Load([]string{dir, source.Standard}, strings.NewReader("kind: nic_tag\nname: in\n"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, doc := range docs {
		names = append(names, doc.Name)
	}
	if got := strings.Join(names, " "); got != "z b1 b2 c1 c2 c3 in" {
		t.Errorf("read %s", got)
	}
	if docs[2].Place.Line != 5 || filepath.Base(docs[2].Place.File) != "b.yaml" || docs[6].Place.File != "standard input" {
		t.Errorf("places: %v, %v", docs[2].Place, docs[6].Place)
	}
	write("d.yaml", "kind: x\n")
	write("e.yaml", "kind: y\n")
	if _, err := source.Load([]string{dir}, nil); err == nil || !strings.Contains(err.Error(), "d.yaml:1") || !strings.Contains(err.Error(), "e.yaml:1") {
		t.Errorf("both are wrong: %v", err)
	}
	if _, err := source.Load([]string{t.TempDir()}, nil); err == nil || !strings.Contains(err.Error(), "no file in it ends in .yaml") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := source.Load([]string{filepath.Join(dir, "none")}, nil); !os.IsNotExist(err) {
		t.Errorf("no such file: %v", err)
	}
}

// FuzzRead: any text is read or refused, and what is read is read again from what is
// written of it.
func FuzzRead(f *testing.F) {
	for _, text := range []string{
		"kind: network\nname: blue\nlabels: {a: b}\nspec:\n  subnet: 10.0.0.0/24\n  routes: {10.1.0.0/16: linklocal}\n",
		`{"kind":"vm","name":"web","spec":{"properties":{"tags":{"a":[1,1.50,true,null,"x"]}}}}`,
		"kind: nic\noptions: [any_owner]\nspec: {mac: 90:b8:d0:01:02:03, vm: ~, ip: null}\n---\nkind: setting\nname: a\nspec: {value: 2026-11-22}\n",
		"kind: server\nname: 0x10\nspec: {comments: \"a\\tb\\u0085\\U0001F600\", traits: {}}\n", "&a *a", "{", "[[", "kind: &x vm", "\ufeffkind: vm\n", "\x00", "? {a: b}\n: c",
		"kind: server\nspec: {\"0\\0\": 1, \"\\e[31m\": 2}\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		docs, err := source.Read("x", text)
		if err != nil {
			return
		}
		var yaml, json []byte
		for i := range docs {
			if ok, _ := documents.Declared(docs[i].Kind); !ok {
				return
			}
			docs[i].Place, docs[i].Lines = documents.Place{}, nil
			yaml = source.AppendYAML(yaml, &docs[i])
			if json, err = source.AppendJSON(json, &docs[i]); err != nil {
				t.Fatal(err)
			}
		}
		for _, again := range [][]byte{yaml, json} {
			got, err := source.Read("y", again)
			if err != nil {
				t.Fatalf("%v\n%s", err, again)
			}
			for i := range got {
				got[i].Place, got[i].Lines = documents.Place{}, nil
			}
			if bytes.Equal(again, yaml) && !reflect.DeepEqual(normal(got), normal(docs)) {
				t.Fatalf("read %#v\nas %#v\n%s", docs, got, again)
			}
		}
	})
}

// normal leaves out what documents without it mean as well.
func normal(docs []documents.Document) (all []documents.Document) {
	for _, doc := range docs {
		if len(doc.Spec) == 0 {
			doc.Spec = nil
		}
		if len(doc.Options) == 0 {
			doc.Options = nil
		}
		all = append(all, doc)
	}
	return all
}
