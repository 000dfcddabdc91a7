package agentcmd

import (
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/term"
)

// TestStatusDoors: the agent's socket is asked first, its address where the socket does not
// answer or only that is named, and what is off is not asked.
func TestStatusDoors(t *testing.T) {
	socket := localhttp.Socket{Path: filepath.Join(t.TempDir(), "run", "agent.sock")}
	l, err := socket.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	answering(t, l, "00000000-0000-4000-8000-000000000001")
	if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	answering(t, l, "00000000-0000-4000-8000-000000000002")
	address, nowhere := l.Addr().String(), filepath.Join(t.TempDir(), "agent.sock")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	deaf := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		env, args string
		want      []string
	}{
		{"", "--agent " + socket.Path + " --listen off", []string{"-000000000001"}},
		{"", "--agent " + socket.Path + " --listen " + address, []string{"-000000000001"}},
		{"", "--agent " + nowhere + " --listen " + address, []string{"-000000000002"}},
		{"", "--agent off --listen " + address, []string{"-000000000002"}},
		{nowhere, "--listen " + address, []string{"-000000000002"}},
		{socket.Path, "", []string{"-000000000001"}},
		{socket.Path, "--listen off", []string{"-000000000001"}},
		{"", "--agent off --listen off", []string{"name the agent's socket by --agent"}},
		{"", "--agent " + nowhere + " --listen " + deaf, []string{"no agent answers", nowhere, deaf, "does it run here?"}},
		{"", "--agent " + nowhere + " --listen off", []string{"no agent answers: " + nowhere}},
	} {
		for _, command := range []string{"status", "ports -o json"} {
			t.Setenv("RUTTER_AGENT_SOCKET", test.env)
			var out strings.Builder
			app := &cli.App{Writer: &out, Commands: []*cli.Command{Command(&cli.Command{Name: "join"})}, ExitErrHandler: func(*cli.Context, error) {}}
			err := app.Run(append([]string{"rutter", "agent"}, strings.Fields(command+" "+test.args)...))
			got := out.String()
			if err != nil {
				got = err.Error()
			}
			if failed := !strings.HasPrefix(test.want[0], "-"); failed != (err != nil) {
				t.Errorf("%s %s: %v\n%s", command, test.args, err, got)
			} else if command == "status" || failed {
				for _, want := range test.want {
					if !strings.Contains(got, want) {
						t.Errorf("%s %s: %s lacks %q", command, test.args, got, want)
					}
				}
			}
			if err != nil && len(test.want) > 1 && term.ExitCode(err) != term.ExitNoReply {
				t.Errorf("%s: exit code %d", test.args, term.ExitCode(err))
			}
		}
	}
}

// answering serves the status of a compute node.
func answering(t *testing.T, l net.Listener, cn string) {
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"cn":"`+cn+`"}`) // the client is gone
	})}
	go func() { _ = server.Serve(l) }() // until Close
	t.Cleanup(func() { _ = server.Close() })
}

// TestStatusWaits: with --wait, an agent that begins to answer later is waited for.
func TestStatusWaits(t *testing.T) {
	socket := localhttp.Socket{Path: filepath.Join(t.TempDir(), "agent.sock")}
	began := make(chan error, 1)
	go func() {
		time.Sleep(2 * askAgain)
		l, err := socket.Listen(t.Context())
		if err == nil {
			answering(t, l, "00000000-0000-4000-8000-000000000001")
		}
		began <- err
	}()
	var out strings.Builder
	app := &cli.App{Writer: &out, Commands: []*cli.Command{Command(&cli.Command{Name: "join"})}, ExitErrHandler: func(*cli.Context, error) {}}
	err := app.Run(strings.Fields("rutter agent status --wait 1m --listen off --agent " + socket.Path))
	if err = errors.Join(<-began, err); err != nil || !strings.Contains(out.String(), "-000000000001") {
		t.Errorf("%v: %s", err, out.String())
	}
}
