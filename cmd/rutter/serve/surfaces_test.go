package serve

import (
	"net/http"
	"strings"
	"testing"

	"rutter/api/auth/enrol"
	"rutter/api/auth/matrix"
	"rutter/api/triton/changefeed"
	"rutter/api/triton/cnapi"
	"rutter/api/triton/napi"
	"rutter/api/triton/netreport"
	"rutter/api/triton/vmapi"
	"rutter/cmd/rutter/storeapi"
	"rutter/log"
)

// Each endpoint of each surface has a row, and each row an endpoint.
func TestEverySurfaceHasRows(t *testing.T) {
	store := storeapi.SurfaceStore{}
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
			if matrix.Find(surface+" "+name) == nil {
				t.Errorf("%s %s has no row in api/auth/matrix: say who may do it, and why", surface, name)
			}
		}
	}
	for _, row := range matrix.Surfaces() {
		if !served[row.What] {
			t.Errorf("the row %q is of nothing that is served", row.What)
		}
	}
}
