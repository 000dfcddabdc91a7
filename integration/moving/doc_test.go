package moving

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rutter/integration/rig"
)

// page is the document, from this package.
const page = "../../docs/triton.md"

// block is one console block of the page: its commands, each behind a $. What
// they print is not of the page, as it differs from installation to installation.
var block = regexp.MustCompile("(?s)```console\n(.*?)```")

// said is what the output of some commands must have in it, by a part of them.
var said = map[string]string{
	"config check":      "",
	"--dry-run":         "",
	"jq .portolan":      `"same": 2`,
	"lookup vl3":        "90:b8:d0:00:00:01",
	"/nics/90b8d000000": "",
	"snoop":             "stopped\n1",
	"triton check":      "napi: ",
	"--against":         "0 differences",
	"log tail":          `state changed :: "running" -> "stopped"`,
}

// dump is what portolan has of the installation.
const dump = `{"bucket": "portolan_vnet_mac_ip", "key": "::ffff:a15:c05,4385813", "value": {"ip": "::ffff:a15:c05", "mac": 159123438043137, "cn_uuid": "` + node + `", "vnet_id": 4385813, "version": 1, "deleted": false}}
{"bucket": "portolan_underlay_mappings", "key": "` + node + `", "value": {"cn_uuid": "` + node + `", "ip": "::ffff:c0a8:630a", "port": 4789}}
`

func TestEveryCommandOfThePage(t *testing.T) {
	for _, program := range []string{"bash", "curl", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("the commands of the page need %s, which is not here", program)
		}
	}
	ports := rig.Ports(t, 1)
	listener := net.JoinHostPort("127.0.0.1", fmt.Sprint(ports[0]))
	old, fresh := clusterOf(t, 1), clusterOf(t, 1, "--napi", listener)
	filled(t, old.Servers[0].URL+"/napi")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "portolan-dump"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "portolan-dump", "portolan.ndjson"), []byte(dump), 0o600); err != nil {
		t.Fatal(err)
	}
	blocks := block.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 8 {
		t.Fatalf("%d blocks of commands found, want 8 or more", len(blocks))
	}
	met := make(map[string]bool)
	for _, b := range blocks {
		for line := range strings.Lines(b[1]) {
			command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ ")
			if !ok {
				t.Fatalf("%q is no command", line)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			cmd := exec.CommandContext(ctx, "bash", "-c", command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(rutter)+":"+os.Getenv("PATH"),
				"RUTTER_SERVER="+fresh.Servers[0].URL, "NAPI="+old.Servers[0].URL+"/napi", "NEW=http://"+listener)
			out, err := cmd.CombinedOutput()
			cancel()
			t.Logf("$ %s\n%s", command, out)
			if err != nil {
				t.Errorf("$ %s: %v", command, err)
			}
			for part, want := range said {
				if strings.Contains(command, part) {
					met[part] = true
					if !strings.Contains(string(out), want) {
						t.Errorf("$ %s\nsaid nothing of %q", command, want)
					}
				}
			}
		}
	}
	for part := range said {
		if !met[part] {
			t.Errorf("the page has no command with %q", part)
		}
	}
}
