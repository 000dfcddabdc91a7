package vmcmd

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/agent/vminfo/vmmstate"
	"rutter/log"
)

// An agent that manages the VM and serves no socket, because it is older than the
// command, is not passed over.
func TestAgentWithoutSocket(t *testing.T) {
	id, err := log.ParseUUID("930896af-bf8c-48d4-885c-6573a94b1853")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		state  string // of the VMM at the agent; "": it has none
		socket string
		want   string
	}{
		{"it manages the VM", "running", filepath.Join(t.TempDir(), "agent.sock"), "restart the agent"},
		{"its VMM has ended", "destroyed", filepath.Join(t.TempDir(), "agent.sock"), ""},
		{"it does not manage the VM", "", filepath.Join(t.TempDir(), "agent.sock"), ""},
		{"another address was named", "running", "127.0.0.1:1", ""},
	} {
		list := []vmmstate.VMM{}
		if c.state != "" {
			list = append(list, vmmstate.VMM{ID: id, VM: id, State: c.state, Gen: 1})
		}
		asked := ""
		old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.URL.String()
			_ = json.NewEncoder(w).Encode(list)
		}))
		flags := flag.NewFlagSet("stop", flag.ContinueOnError)
		flags.String("agent", c.socket, "")
		context := cli.NewContext(cli.NewApp(), flags, nil)
		context.Command = &cli.Command{Name: "stop"}
		a := &vmAction{c: context, id: id}
		err := a.withoutSocket(t.Context(), strings.TrimPrefix(old.URL, "http://"))
		old.Close()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.socket)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
		if c.want != "" && asked != "/vmms?vm="+id.String() {
			t.Errorf("%s: asked %q", c.name, asked)
		}
		if err := a.withoutSocket(t.Context(), strings.TrimPrefix(old.URL, "http://")); err != nil {
			t.Errorf("%s, agent gone: %v", c.name, err)
		}
	}
}
