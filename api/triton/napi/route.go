package napi

import (
	"context"
	"net/http"
	"time"

	"rutter/api/auth/webcheck"
	"rutter/api/internal/rest"
)

// routes lists every endpoint (spec/napi.md section 3.2). HEAD is added to each GET.
func (s *Service) routes() []rest.Route {
	const vlans = "/fabrics/{owner_uuid}/vlans"
	const fabricNetworks = vlans + "/{vlan_id}/networks"
	rows := []rest.Route{
		{Method: "GET", Pattern: "/ping", Serve: s.ping},
		{Method: "GET", Pattern: "/manage/gc", Serve: s.collect},
		{Method: "GET", Pattern: "/nic_tags", Serve: s.listTags},
		{Method: "POST", Pattern: "/nic_tags", Serve: s.createTag},
		{Method: "GET", Pattern: "/nic_tags/{name}", Serve: s.getTag},
		{Method: "PUT", Pattern: "/nic_tags/{name}", Serve: s.updateTag},
		{Method: "DELETE", Pattern: "/nic_tags/{name}", Serve: s.deleteTag},
		{Method: "GET", Pattern: "/networks", Serve: s.listNetworks},
		{Method: "POST", Pattern: "/networks", Serve: s.createNetwork},
		{Method: "GET", Pattern: "/networks/{uuid}", Serve: s.getNetwork},
		{Method: "PUT", Pattern: "/networks/{uuid}", Serve: s.updateNetwork},
		{Method: "DELETE", Pattern: "/networks/{uuid}", Serve: s.deleteNetwork},
		{Method: "POST", Pattern: "/networks/{uuid}/nics", Serve: s.provision},
		{Method: "GET", Pattern: "/networks/{uuid}/ips", Serve: s.listIPs},
		{Method: "GET", Pattern: "/networks/{uuid}/ips/{ip}", Serve: s.getIP},
		{Method: "PUT", Pattern: "/networks/{uuid}/ips/{ip}", Serve: s.updateIP},
		{Method: "GET", Pattern: "/nics", Serve: s.listNICs},
		{Method: "POST", Pattern: "/nics", Serve: s.createNIC},
		{Method: "GET", Pattern: "/nics/{mac}", Serve: s.getNIC},
		{Method: "PUT", Pattern: "/nics/{mac}", Serve: s.updateNIC},
		{Method: "DELETE", Pattern: "/nics/{mac}", Serve: s.deleteNIC},
		{Method: "GET", Pattern: vlans, Serve: s.listVLANs},
		{Method: "POST", Pattern: vlans, Serve: s.createVLAN},
		{Method: "GET", Pattern: vlans + "/{vlan_id}", Serve: s.getVLAN},
		{Method: "PUT", Pattern: vlans + "/{vlan_id}", Serve: s.updateVLAN},
		{Method: "DELETE", Pattern: vlans + "/{vlan_id}", Serve: s.deleteVLAN},
		{Method: "GET", Pattern: fabricNetworks, Serve: s.listFabricNetworks},
		{Method: "POST", Pattern: fabricNetworks, Serve: s.createFabricNetwork},
		{Method: "GET", Pattern: fabricNetworks + "/{uuid}", Serve: s.getFabricNetwork},
		{Method: "PUT", Pattern: fabricNetworks + "/{uuid}", Serve: s.updateFabricNetwork},
		{Method: "DELETE", Pattern: fabricNetworks + "/{uuid}", Serve: s.deleteFabricNetwork},
		{Method: "GET", Pattern: "/network_pools", Serve: s.listPools},
		{Method: "POST", Pattern: "/network_pools", Serve: s.createPool},
		{Method: "GET", Pattern: "/network_pools/{uuid}", Serve: s.getPool},
		{Method: "PUT", Pattern: "/network_pools/{uuid}", Serve: s.updatePool},
		{Method: "DELETE", Pattern: "/network_pools/{uuid}", Serve: s.deletePool},
		{Method: "GET", Pattern: "/aggregations", Serve: s.listAggregations},
		{Method: "POST", Pattern: "/aggregations", Serve: s.createAggregation},
		{Method: "GET", Pattern: "/aggregations/{id}", Serve: s.getAggregation},
		{Method: "PUT", Pattern: "/aggregations/{id}", Serve: s.updateAggregation},
		{Method: "DELETE", Pattern: "/aggregations/{id}", Serve: s.deleteAggregation},
		{Method: "GET", Pattern: "/routers", Serve: s.listRouters},
		{Method: "POST", Pattern: "/routers", Serve: s.createRouter},
		{Method: "GET", Pattern: "/routers/{uuid}", Serve: s.getRouter},
		{Method: "PUT", Pattern: "/routers/{uuid}", Serve: s.updateRouter},
		{Method: "DELETE", Pattern: "/routers/{uuid}", Serve: s.deleteRouter},
		{Method: "GET", Pattern: "/search/ips", Serve: s.searchIPs},
	}
	rows = append(rows, s.cfg.Changefeeds...)
	var all []rest.Route
	for _, row := range rows {
		all = append(all, row)
		if row.Method == http.MethodGet {
			all = append(all, rest.Route{Method: http.MethodHead, Pattern: row.Pattern, Serve: row.Serve})
		}
	}
	return all
}

// surface is the table with the answers for unknown paths and methods.
func (s *Service) surface() *rest.Table {
	return &rest.Table{
		Surface: "napi", Clients: webcheck.Triton, Routes: s.routes(), Wrap: s.measured,
		NoRoute: func(_ http.ResponseWriter, r *http.Request) error {
			return fail(http.StatusNotFound, codeNotFound, r.URL.Path+" does not exist")
		},
		NoMethod: func(_ http.ResponseWriter, r *http.Request) error {
			return fail(http.StatusMethodNotAllowed, rest.CodeNoMethod, r.Method+" is not allowed")
		},
	}
}

// measured calls an endpoint, answers its error, and counts both.
func (s *Service) measured(path string, serve rest.Endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &rest.Recorder{ResponseWriter: w}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody) // of w itself, so that it closes the connection
		if err := serve(seen, r); err != nil {
			s.writeError(seen, r, err)
		}
		rest.Count(s.requests, path, rest.KnownMethod(r.Method), seen.Status)
	})
}

// within returns the request's context with a deadline.
func within(r *http.Request, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), d)
}
