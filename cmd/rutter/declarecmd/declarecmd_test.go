package declarecmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/messages"
	"rutter/log"
	"rutter/projections"
	"rutter/projections/documents/source"
)

// state has a tag, a network on it and a VM with a secret.
func state(t *testing.T) *projections.State {
	t.Helper()
	s := projections.NewState()
	for i, text := range []struct {
		kind log.Kind
		json string
	}{
		{log.KindNICTag, `{"name":"external","mtu":1500}`},
		{log.KindNetwork, `{"uuid":"0e70de36-a40b-4ac0-9429-819f5ff82011","name":"blue","nic_tag":"external","subnet":"10.1.0.0/24","mtu":1500}`},
		{log.KindVM, `{"uuid":"5595d88c-6e4d-4bda-b58e-97dd02e30001","alias":"we\u001b[2Jb","owner_uuid":"930896af-bf8c-48d4-885c-6573a94b1853","properties":"{\"internal_metadata\":{\"pw\":\"hunter2\"}}"}`},
	} {
		o, _, err := log.ParseObject(text.kind, []byte(text.json))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Load(projections.Record{Object: o, Revision: 1, Seq: log.Seq(i + 1)}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run runs a command and returns what it printed.
func run(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, wrong bytes.Buffer
	app := &cli.App{Name: "rutter", Writer: &out, ErrWriter: &wrong, Commands: []*cli.Command{
		ExportCommand(func(*cli.Context) (*projections.State, log.Seq, error) { return state(t), 3, nil }), ExplainCommand(),
	}}
	err = app.RunContext(t.Context(), append([]string{"rutter"}, args...))
	return out.String(), wrong.String(), err
}

// TestExport: standard output, a file and a folder have the same documents, without
// secrets, and without characters that would move the cursor.
func TestExport(t *testing.T) {
	out, warned, err := run(t, "export")
	if err != nil || strings.Count(out, "---\n") != 3 || strings.Contains(out, "hunter2") || strings.ContainsRune(out, 0x1b) || !strings.Contains(out, "subnet: 10.1.0.0/24") {
		t.Fatalf("%v:\n%s", err, out)
	}
	if !strings.Contains(warned, "left out of 1 VMs") {
		t.Errorf("what is left out is not said: %s", warned)
	}
	dir := t.TempDir()
	file, folder := filepath.Join(dir, "all.yaml"), filepath.Join(dir, "folder")+"/"
	if _, _, err := run(t, "export", "-f", file); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != out {
		t.Errorf("%v: the file has %s", err, text)
	}
	if _, _, err := run(t, "export", "-f", folder, "-o", "json"); err != nil {
		t.Fatal(err)
	}
	if docs, err := source.Load([]string{folder}, nil); err != nil || len(docs) != 3 {
		t.Errorf("%v: the folder has %+v", err, docs)
	}
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 3 || entries[0].Name() != "network.json" {
		t.Errorf("%v: %v", err, entries)
	}
	if out, _, err := run(t, "export", "--kind", "network"); err != nil || strings.Count(out, "kind:") != 1 {
		t.Errorf("%v: %s", err, out)
	}
	for _, args := range [][]string{{"--kind", "task"}, {"--kind", "x"}, {"--label", "x"}, {"--owner", "x"}, {"more"}} {
		if _, _, err := run(t, append([]string{"export"}, args...)...); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// TestExplain: each kind and each field is explained, under the names of the log and of
// documents; each declared kind has a schema.
func TestExplain(t *testing.T) {
	all, _, err := run(t, "explain")
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range log.Kinds() {
		if !strings.Contains(all, kind.String()) {
			t.Errorf("%s is not listed", kind)
		}
		text, _, err := run(t, "explain", "-o", "json", kind.String())
		var form kindForm
		if err != nil || json.Unmarshal([]byte(text), &form) != nil || len(form.Fields) != len(log.FieldNames(kind)) {
			t.Fatalf("%s: %v: %s", kind, err, text)
		}
		for _, f := range form.Fields {
			names := append(strings.Split(f.Document, ", "), f.Name)
			for _, name := range names {
				if name == "" {
					continue
				}
				if one, _, err := run(t, "explain", kind.String()+"."+name); err != nil || !strings.Contains(one, f.Text) {
					t.Errorf("%s.%s: %v: %s", kind, name, err, one)
				}
			}
		}
		text, _, err = run(t, "explain", "--schema", kind.String())
		if (err == nil) != form.Declared || err == nil && !json.Valid([]byte(text)) {
			t.Errorf("the schema of %s: %v: %s", kind, err, text)
		}
	}
	if text, _, err := run(t, "explain", "--schema"); err != nil || !json.Valid([]byte(text)) {
		t.Errorf("the schema: %v: %s", err, text)
	}
	m, _ := messages.ByID("RT007")
	if text, _, err := run(t, "explain", "RT007"); err != nil || !strings.Contains(text, m.Text) || !strings.Contains(text, m.Do) || m.Do == "" {
		t.Errorf("a message: %v: %s", err, text)
	}
	for word, want := range map[string]string{"netwrk": "did you mean network?", "network.subnte": "did you mean subnet?", "nothing at all": "there is no kind", "RT9999": "no message has the id"} {
		if _, _, err := run(t, "explain", word); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
