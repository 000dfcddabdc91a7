package napi

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// endpoint answers a request, or returns the error to answer with.
type endpoint func(w http.ResponseWriter, r *http.Request) error

// route is a row of the table that the handler is made from.
type route struct {
	method, path string
	serve        endpoint
}

// table lists every endpoint (spec/napi.md section 3.2). HEAD is added to each GET.
func (s *Service) table() []route {
	const vlans = "/fabrics/{owner_uuid}/vlans"
	const fabricNetworks = vlans + "/{vlan_id}/networks"
	rows := []route{
		{"GET", "/ping", s.ping},
		{"GET", "/manage/gc", s.collect},
		{"GET", "/nic_tags", s.listTags},
		{"POST", "/nic_tags", s.createTag},
		{"GET", "/nic_tags/{name}", s.getTag},
		{"PUT", "/nic_tags/{name}", s.updateTag},
		{"DELETE", "/nic_tags/{name}", s.deleteTag},
		{"GET", "/networks", s.listNetworks},
		{"POST", "/networks", s.createNetwork},
		{"GET", "/networks/{uuid}", s.getNetwork},
		{"PUT", "/networks/{uuid}", s.updateNetwork},
		{"DELETE", "/networks/{uuid}", s.deleteNetwork},
		{"POST", "/networks/{uuid}/nics", s.provision},
		{"GET", "/networks/{uuid}/ips", s.listIPs},
		{"GET", "/networks/{uuid}/ips/{ip}", s.getIP},
		{"PUT", "/networks/{uuid}/ips/{ip}", s.updateIP},
		{"GET", "/nics", s.listNICs},
		{"POST", "/nics", s.createNIC},
		{"GET", "/nics/{mac}", s.getNIC},
		{"PUT", "/nics/{mac}", s.updateNIC},
		{"DELETE", "/nics/{mac}", s.deleteNIC},
		{"GET", vlans, s.listVLANs},
		{"POST", vlans, s.createVLAN},
		{"GET", vlans + "/{vlan_id}", s.getVLAN},
		{"PUT", vlans + "/{vlan_id}", s.updateVLAN},
		{"DELETE", vlans + "/{vlan_id}", s.deleteVLAN},
		{"GET", fabricNetworks, s.listFabricNetworks},
		{"POST", fabricNetworks, s.createFabricNetwork},
		{"GET", fabricNetworks + "/{uuid}", s.getFabricNetwork},
		{"PUT", fabricNetworks + "/{uuid}", s.updateFabricNetwork},
		{"DELETE", fabricNetworks + "/{uuid}", s.deleteFabricNetwork},
		{"GET", "/network_pools", s.listPools},
		{"POST", "/network_pools", s.createPool},
		{"GET", "/network_pools/{uuid}", s.getPool},
		{"PUT", "/network_pools/{uuid}", s.updatePool},
		{"DELETE", "/network_pools/{uuid}", s.deletePool},
		{"GET", "/aggregations", s.listAggregations},
		{"POST", "/aggregations", s.createAggregation},
		{"GET", "/aggregations/{id}", s.getAggregation},
		{"PUT", "/aggregations/{id}", s.updateAggregation},
		{"DELETE", "/aggregations/{id}", s.deleteAggregation},
		{"GET", "/routers", s.listRouters},
		{"POST", "/routers", s.createRouter},
		{"GET", "/routers/{uuid}", s.getRouter},
		{"PUT", "/routers/{uuid}", s.updateRouter},
		{"DELETE", "/routers/{uuid}", s.deleteRouter},
		{"GET", "/search/ips", s.searchIPs},
	}
	if s.cfg.Changefeeds != nil {
		rows = append(rows, route{"GET", "/changefeeds", s.changefeeds}, route{"GET", "/changefeeds/stats", s.changefeeds})
	}
	return rows
}

// routes makes the handler and the list of what it serves from the table.
func (s *Service) routes() (http.Handler, []string) {
	mux := http.NewServeMux()
	var endpoints, paths []string
	methods := map[string][]string{}
	add := func(row route) {
		mux.Handle(row.method+" "+row.path, s.measured(row.path, row.serve))
		endpoints = append(endpoints, row.method+" "+row.path)
		if len(methods[row.path]) == 0 {
			paths = append(paths, row.path)
		}
		methods[row.path] = append(methods[row.path], row.method)
	}
	for _, row := range s.table() {
		add(row)
		if row.method == http.MethodGet {
			add(route{http.MethodHead, row.path, row.serve})
		}
	}
	for _, path := range paths {
		slices.Sort(methods[path])
		allow := strings.Join(methods[path], ", ")
		mux.Handle(path, s.measured(path, func(w http.ResponseWriter, r *http.Request) error {
			w.Header().Set("Allow", allow)
			return fail(http.StatusMethodNotAllowed, "MethodNotAllowed", r.Method+" is not allowed")
		}))
	}
	mux.Handle("/", s.measured("unknown", func(_ http.ResponseWriter, r *http.Request) error {
		return fail(http.StatusNotFound, codeNotFound, r.URL.Path+" does not exist")
	}))
	return mux, endpoints
}

// measured calls an endpoint, answers its error, and counts both.
func (s *Service) measured(path string, serve endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &statusWriter{ResponseWriter: w}
		r.Body = http.MaxBytesReader(w, r.Body, MaxBody)
		if err := serve(seen, r); err != nil {
			s.writeError(seen, r, err)
		}
		s.requests.WithLabelValues(path, r.Method, strconv.Itoa(seen.status)).Inc()
	})
}

// changefeeds hands a request to the change feed's own handler.
func (s *Service) changefeeds(w http.ResponseWriter, r *http.Request) error {
	if seen, ok := w.(*statusWriter); ok {
		w = seen.ResponseWriter // it takes the connection over
	}
	s.cfg.Changefeeds.ServeHTTP(w, r)
	return nil
}

// statusWriter notes the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// within returns the request's context with a deadline.
func within(r *http.Request, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), d)
}
