package cookbook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"rutter/api/client"
)

// The nodes of `rutter dev` are what those of a cluster are: whichever server holds
// their sessions these are listed, CNAPI has their sysinfo, and they do tasks.
func TestNodesOfDev(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	server := start(t, ctx, "--plain")
	api, err := client.New(client.Config{Servers: []string{server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	nodes, err := api.List(ctx, "/cnapi/servers", url.Values{"extras": {"sysinfo"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 2 {
		t.Errorf("CNAPI lists %d servers, want both nodes", len(nodes))
	}
	for _, node := range nodes {
		id, _ := node["uuid"].(string)
		said, _ := node["sysinfo"].(map[string]any)
		if said["UUID"] != id || said["Rutter Agent"] == nil {
			t.Errorf("the sysinfo of %s is %v, want what its agent says", id, said)
		}
		for _, task := range []string{"nop", "sysinfo"} {
			if out, err := exec.CommandContext(ctx, rutter, "task", "run", id, task, "--wait", "--timeout", "60s", "-s", server.URL).CombinedOutput(); err != nil {
				t.Errorf("%s on %s: %v: %s", task, id, err, out)
			}
		}
	}
	await(t, ctx, api) // their servers have told the leader of them
	first, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(first.Port())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		s := fmt.Sprintf("http://127.0.0.1:%d", port+10*i) // as rutter dev --help says
		out, err := exec.CommandContext(ctx, rutter, "cn", "sessions", "-o", "json", "-s", s).Output()
		if err != nil {
			t.Fatal(err)
		}
		var sessions []client.Session
		if err := json.Unmarshal(out, &sessions); err != nil || len(sessions) != 2 {
			t.Errorf("asked %s: %d sessions (%v), want those of both nodes: %s", s, len(sessions), err, out)
		}
	}
}
