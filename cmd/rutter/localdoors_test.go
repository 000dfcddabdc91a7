package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rutter/cmd/rutter/localhttp"
	"rutter/cmd/rutter/node"
	"rutter/log"
)

// An agent does not start with a door that lets in each user of its node.
func TestAgentRefusesOpenDoors(t *testing.T) {
	const agent = "[agent]\ncn = \"564d69b1-a178-4fbe-b36f-3f2b7fd7ed01\"\nservers = [\"http://10.0.0.1:7420\"]\n"
	for line, want := range map[string]string{
		`cn-api = "127.0.0.1:5309"`:                    "each user of this node can stop its VMs",
		`cn-api = "10.0.0.11:5309"`:                    "--cn-api 10.0.0.11:5309 is reachable from other machines",
		"cn-api = \"127.0.0.1:5309\"\ninsecure = true": "",
		`socket = "agent.sock"`:                        "absolute path",
		`socket-group = "no such group"`:               "this machine has no such group",
		`vminfod-users = "no such user"`:               "this machine has no user",
		`vminfod-users = "root,1001"`:                  "",
		`socket = "off"`:                               "",
	} {
		code, out, errs := rutter(t, "config", "check", configIn(t, agent+line+"\n"))
		if (code == 0) != (want == "") || want != "" && !strings.Contains(out+errs, want) {
			t.Errorf("%s: exit code %d, %s%s, want %q", line, code, out, errs, want)
		}
	}
}

// Two agents cannot have one socket. A node whose user named it does not start; another
// one keeps its network, and says what is missing.
func TestNodeWithoutItsSocket(t *testing.T) {
	socket := localhttp.Socket{Path: filepath.Join(t.TempDir(), "agent.sock")}
	other, err := socket.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	start := func(asked bool, status string) (ended <-chan error) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		opts := node.Options{CN: log.UUID{1}, Folder: t.TempDir(), Kernel: node.SimulatedKernel(), Status: status, Socket: socket, SocketAsked: asked}
		if opts.Servers, err = node.Connect(opts.CN, []string{"http://127.0.0.1:1"}, nil, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		n, err := node.Open(opts)
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			done <- n.Run(ctx)
			close(stopped)
		}()
		t.Cleanup(func() { cancel(); <-stopped })
		return done
	}
	if err := <-start(true, "off"); !errors.Is(err, localhttp.ErrSocketInUse) {
		t.Errorf("a socket that was asked for: got %v, want ErrSocketInUse", err)
	}
	status := freeAddress(t)
	ended := start(false, status)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		var s struct{ Trouble []string }
		if response, err := http.Get("http://" + status + "/status"); err == nil {
			err = json.NewDecoder(response.Body).Decode(&s)
			response.Body.Close()
			if err == nil && strings.Contains(strings.Join(s.Trouble, "\n"), "another process serves it") {
				return
			}
		}
		select {
		case err := <-ended:
			t.Fatalf("the node has ended: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the status says %v, want that there is no socket", s.Trouble)
		}
	}
}
