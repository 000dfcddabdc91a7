package logcmd

import (
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"rutter/log"
)

// What log diff, log blame and log history print of a VM that was moved has names beside
// UUIDs and times as times, for people, as JSON and as CSV.
func TestNamesAndTimes(t *testing.T) {
	t.Parallel()
	f := newFabric(t).vms()
	before := log.Seq(len(f.entries))
	vm := log.Clone(f.objects["vm "+uuid(21).String()]).(*log.VM)
	vm.ServerUUID, vm.LastModified = uuid(10), log.Time(1795251600123e6)
	f.update(vm)
	f.moved(uuid(10), 0)
	again := log.Clone(vm).(*log.VM)
	again.LastModified = log.Time(1795251601e9)
	f.update(again)
	path := f.file()
	id := uuid(21).String()

	text := printedBy(t, "diff", "--from", before.String(), "--data", path)
	for _, want := range []string{
		"~ vm " + id + " (db1) #13\n",
		`    server_uuid :: "` + uuid(11).String() + `" (cn1) -> "` + uuid(10).String() + `" (cn0)` + "\n",
		`    last_modified :: null -> "2026-11-21T09:00:01.000Z"` + "\n",
		`    cn_uuid :: "` + uuid(11).String() + `" (cn1) -> "` + uuid(10).String() + `" (cn0)` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("diff: %q is missing in\n%s", want, text)
		}
	}
	var all []diffObject
	if err := json.Unmarshal([]byte(printedBy(t, "diff", "--from", "11", "--data", path, "-o", "json")), &all); err != nil || len(all) != 2 {
		t.Fatalf("%v: %+v", err, all)
	}
	field := all[1].Changed[0]
	if all[1].Name != "db1" || field.Path != "last_modified" || field.Old != "2026-11-21T09:00:00.123Z" || field.New != "2026-11-21T09:00:01.000Z" {
		t.Errorf("diff -o json: %+v", all)
	}
	if field := all[0].Changed[0]; field.NewName != "cn0" || field.OldName != "cn1" {
		t.Errorf("diff -o json: %+v", all)
	}
	records, err := csv.NewReader(strings.NewReader(printedBy(t, "diff", "--from", "11", "--data", path, "-o", "csv"))).ReadAll()
	if err != nil || len(records) != 3 || strings.Join(records[2], "|") != "|update|vm|"+id+"|db1|13|last_modified|2026-11-21T09:00:00.123Z|2026-11-21T09:00:01.000Z" {
		t.Errorf("diff -o csv: %v: %q", err, records)
	}

	for _, out := range []string{"json", "ndjson"} {
		if text := printedBy(t, "blame", "--data", path, "-o", out, "vm", id); strings.Contains(text, "17952516") || !strings.Contains(text, `2026-11-21T09:00:00.123Z`) {
			t.Errorf("blame -o %s has times as numbers:\n%s", out, text)
		}
		if text := printedBy(t, "history", "--data", path, "-o", out, "vm", id); strings.Contains(text, "17952516") || !strings.Contains(text, `"old":"2026-11-21T09:00:00.123Z"`) {
			t.Errorf("history -o %s has times as numbers:\n%s", out, text)
		}
	}
}

// Names come from the log that is read; a folder has them, and so has an export that bisect
// and diff unfold. A name that looks like a value is quoted.
func TestNamesOfAFolder(t *testing.T) {
	t.Parallel()
	f := newFabric(t).vms()
	server := log.Clone(f.objects["server "+uuid(11).String()]).(*log.Server)
	server.Hostname = "x) -> \x1b[31m\""
	f.update(server)
	folder := t.TempDir() + "/folder"
	printedBy(t, "replay", "--to", folder, f.file())
	id := uuid(21).String()
	want := `"` + uuid(11).String() + `" ("x) -> \x1b[31m\"")`
	for _, args := range []string{"blame", "history"} {
		if text := printedBy(t, args, "--data", folder, "vm", id); !strings.Contains(text, want) {
			t.Errorf("%v: %s is missing in\n%s", args, want, text)
		}
	}
	if text := printedBy(t, "blame", "--data", folder, "ip", "10.0.0.6"); !strings.Contains(text, "of "+id+" (db1) on network "+uuid(2).String()+" (blue)") {
		t.Errorf("blame ip:\n%s", text)
	}
	if text := printedBy(t, "blame", "--data", folder, "-o", "json", "vm", id); !strings.Contains(text, `"name": "x) -\u003e \u001b[31m\""`) {
		t.Errorf("blame -o json:\n%s", text)
	}
}
