package napi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"rutter/integration/rig"
)

// TestWriteChoosesNoProgram: a program that may write CNAPI and VMAPI makes VMs, and
// chooses nothing that runs on a compute node; no task of what was refused is in the
// log. One that was let in for that chooses programs, and runs no commands.
func TestWriteChoosesNoProgram(t *testing.T) {
	const writer, chooser, cn = "127.0.0.3", "127.0.0.5", "564d69b1-a178-4fbe-b36f-3f2b7fd7ed02"
	const vm, owner = "5595d88c-6e4d-4bda-b58e-97dd02e30007", "930896af-bf8c-48d4-885c-6573a94b1853"
	ports := rig.Ports(t, 2)
	base := map[string]string{"cnapi": fmt.Sprintf("127.0.0.1:%d", ports[0]), "vmapi": fmt.Sprintf("127.0.0.1:%d", ports[1])}
	c := clusterOf(t, 1, "--cnapi="+base["cnapi"], "--vmapi="+base["vmapi"], "--triton-allow="+writer+"=write", "--triton-allow="+chooser+"=programs")
	clients := map[string]*http.Client{writer: from(t, writer), chooser: from(t, chooser), "operator": http.DefaultClient}
	do := func(who, surface, request, body string) (int, string) {
		method, path, _ := strings.Cut(request, " ")
		url := "http://" + base[surface] + path
		if who == "operator" {
			url = c.Servers[0].URL + "/" + surface + path
		}
		status, answer := ask(t, clients[who], method, url, body)
		return status, fmt.Sprint(answer["message"])
	}
	must := func(who, surface, request, body string, want int) {
		t.Helper()
		if status, said := do(who, surface, request, body); status != want {
			t.Fatalf("%s asks %s for %s %s: got %d %s, want %d", who, surface, request, body, status, said, want)
		}
	}
	must(writer, "cnapi", "POST /servers/"+cn+"/sysinfo", `{"sysinfo": {"UUID": "`+cn+`", "Hostname": "cn2", "Rutter Agent": "v1"}}`, 200)
	status, answer := ask(t, http.DefaultClient, "POST", c.Servers[0].URL+"/vms", `{"uuid":"`+vm+`","alias":"a","owner_uuid":"`+owner+`","state":"running","server_uuid":"`+cn+`"}`)
	if status/100 != 2 {
		t.Fatalf("the VM is not made: %d %v", status, answer)
	}
	made := `{"uuid":"` + vm + `","owner_uuid":"` + owner + `"`
	tasks := func() string { return text(t, c.Servers[0].URL+"/tasks") }
	before := tasks()
	for _, attack := range []struct{ surface, request, body, names string }{
		{"cnapi", "POST /servers/" + cn + "/vms", made + `,"init":["/bin/sh","-c","id > /root/mark"]}`, "init"},
		{"cnapi", "POST /servers/" + cn + "/vms?init=sh", made + `}`, "init"},
		{"cnapi", "POST /servers/" + cn + "/vms", made + `,"networks":[{"uuid":"` + owner + `"}],"root":"/etc"}`, "root"},
		{"cnapi", "POST /servers/" + cn + "/vms", made + `,"brand":"kvm","disks":[{"path":"/dev/sda"}]}`, "disks"},
		{"cnapi", "POST /servers/" + cn + "/vms", made + `,"zonename":"global"}`, "zonename"},
		{"cnapi", "POST /servers/" + cn + "/vms/" + vm + "/update", `{"qemu_extra_opts":["-cdrom","/dev/sda"]}`, "qemu_extra_opts"},
		{"cnapi", "POST /servers/" + cn + "/tasks", `{"task":"machine_create","params":` + made + `,"init":["sh"]}}`, "init"},
		{"cnapi", "POST /servers/" + cn + "/tasks", `{"task":"machine_update","params":` + made + `,"init":["sh"]}}`, "init"},
		{"cnapi", "POST /servers/" + cn + "/tasks", `{"task":"command_execute","params":{"script":"id"}}`, "command"},
		{"cnapi", "POST /servers/" + cn + "/tasks", `{"task":"agents_install","params":{}}`, "agents_install"},
		{"cnapi", "POST /servers/" + cn + "/execute", `{"script":"id"}`, ""},
		{"vmapi", "POST /vms/" + vm + "?action=update", `{"init":["/bin/sh"],"root":"/"}`, "init, root"},
	} {
		if status, said := do(writer, attack.surface, attack.request, attack.body); status != http.StatusForbidden || !strings.Contains(said, attack.names) {
			t.Errorf("%s asks for %s %s: got %d %s, want 403 with %q", attack.surface, attack.request, attack.body, status, said, attack.names)
		}
	}
	if after := tasks(); after != before {
		t.Errorf("what was refused is in the log: %s", after)
	}
	// What writing is for, and what the two others may.
	must(writer, "cnapi", "POST /servers/"+cn+"/vms", made+`,"autoboot":false,"zonename":"`+vm+`","disks":[{"size":1}],"customer_metadata":{"user-script":"id"}}`, 200)
	must(writer, "cnapi", "POST /servers/"+cn+"/tasks", `{"task":"nop"}`, 200)
	must(writer, "vmapi", "POST /vms/"+vm+"?action=update", `{"alias":"b"}`, 202)
	for _, who := range []string{chooser, "operator"} {
		must(who, "cnapi", "POST /servers/"+cn+"/vms", made+`,"root":"/vms/a","init":["/sbin/init"]}`, 200)
		must(who, "vmapi", "POST /vms/"+vm+"?action=update", `{"init":["/sbin/init"]}`, 202)
	}
	if status, _ := do(chooser, "cnapi", "POST /servers/"+cn+"/execute", `{"script":"id"}`); status != http.StatusForbidden {
		t.Errorf("a command of a program without a certificate: %d, want 403", status)
	}
	// A grant in the log takes the place of the list, and gives no such right.
	status, answer = ask(t, http.DefaultClient, "PUT", c.Servers[0].URL+"/grants/foreign:"+chooser, `{"write":["cnapi","vmapi"]}`)
	if status/100 != 2 {
		t.Fatalf("the grant is not made: %d %v", status, answer)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := do(chooser, "vmapi", "POST /vms/"+vm+"?action=update", `{"init":["/sbin/init"]}`); status == http.StatusForbidden {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("with a grant of write: got %d, want 403", status)
		}
	}
}
