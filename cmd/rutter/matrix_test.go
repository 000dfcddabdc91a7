package main

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"rutter/api/access"
	"rutter/api/changefeed"
	"rutter/api/cnapi"
	"rutter/api/enrol"
	"rutter/api/napi"
	"rutter/api/netreport"
	"rutter/api/vmapi"
	"rutter/log"
)

// Each endpoint of each surface has a row, and each row an endpoint.
func TestEverySurfaceHasRows(t *testing.T) {
	store := surfaceStore{}
	feeds, err := changefeed.New(changefeed.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	reports, err := netreport.New(netreport.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	networks, err := napi.New(napi.Config{Store: store, Changefeeds: http.NotFoundHandler()})
	if err != nil {
		t.Fatal(err)
	}
	pki, err := enrol.New(enrol.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	vms, err := vmapi.New(vmapi.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := cnapi.New(cnapi.Config{Store: store, NewID: func() (log.UUID, error) { return log.UUID{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	served := make(map[string]bool)
	for surface, endpoints := range map[string][]string{
		"changefeeds": feeds.Endpoints(), "reports": reports.Endpoints(), "napi": networks.Endpoints(), "pki": pki.Endpoints(), "vmapi": vms.Endpoints(), "cnapi": nodes.Endpoints(),
	} {
		for _, name := range endpoints {
			if strings.HasPrefix(name, http.MethodHead+" ") {
				continue // answered by the row of GET
			}
			served[surface+" "+name] = true
			if access.Find(surface+" "+name) == nil {
				t.Errorf("%s %s has no row in api/access: say who may do it, and why", surface, name)
			}
		}
	}
	for _, row := range access.Surfaces() {
		if !served[row.What] {
			t.Errorf("the row %q is of nothing that is served", row.What)
		}
	}
}

// Each command has a row, and each row a command.
func TestEveryCommandHasARow(t *testing.T) {
	app := newApp(io.Discard, io.Discard)
	var names []string
	var walk func(prefix string, commands []*cli.Command)
	walk = func(prefix string, commands []*cli.Command) {
		for _, c := range commands {
			name := strings.TrimSpace(prefix + " " + c.Name)
			if len(c.Subcommands) > 0 {
				walk(name, c.Subcommands)
				continue
			}
			names = append(names, name)
		}
	}
	walk("", app.Commands)
	for _, name := range names {
		if access.Find("command "+name) == nil {
			t.Errorf("command %q has no row in api/access/commands.go: say which certificate it takes", name)
		}
	}
	for _, row := range access.Commands() {
		if name := strings.TrimPrefix(row.What, "command "); !slices.Contains(names, name) {
			t.Errorf("the row %q is of no command", row.What)
		}
	}
}
